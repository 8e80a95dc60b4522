"""ssfx in other people's trainers: Hugging Face Trainer and accelerate, Lightning. Each module needs its library."""
