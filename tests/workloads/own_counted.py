"""Own models whose parameters are tied, shared, frozen, buffered or built in the first forward pass."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BatchEncoding,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

TOKENS = torch.zeros(2, 16, dtype=torch.long)
SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.body(self.table(x)))


def tied():
    return Tied(), TOKENS


def shared():
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(8, 3)), torch.randn(5, 8)


def frozen():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    return model, torch.randn(5, 8)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("mask", torch.ones(8))
        self.plain, self.several = torch.ones(8), [torch.ones(8)]

    def forward(self, x):
        return self.norm(self.layer(x)) * self.mask * self.plain * self.several[0]


def buffered():
    return Buffered(), torch.randn(5, 8)


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3)), torch.randn(5, 12)


class BuiltInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = None

    def forward(self, x):
        if self.layer is None:
            self.layer = nn.Linear(x.shape[-1], 4)
        return self.layer(x)


def built_in_forward():
    return BuiltInForward(), torch.randn(5, 12)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 9)

    def forward(self, x):
        return self.used(x)


def unused():
    return Unused(), torch.randn(5, 4)


def of_the_loss():
    share, model = torch.ones(3), nn.Linear(8, 3)

    def loss(net, batch):
        return functional.cross_entropy(net(batch[0]), batch[1], weight=share) + model.weight.square().sum()

    return model, (torch.randn(5, 8), torch.zeros(5, dtype=torch.long)), loss


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.again = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.again, x, use_reentrant=True)
        return x


def checkpointed():
    return Checkpointed(), torch.randn(5, 8)


def recurrent():
    return nn.GRU(8, 8, batch_first=True), torch.randn(5, 6, 8)


def parametrized():
    norm = nn.utils.parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), norm(nn.Linear(8, 2))), torch.randn(5, 8)


def gradient_penalty():
    def loss(net, batch):
        batch = batch.clone().requires_grad_()
        out = net(batch).sum()
        (slope,) = torch.autograd.grad(out, batch, create_graph=True)
        return out + slope.square().sum()

    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(5, 4), loss


def gpt2():
    config = GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=99, n_positions=16, bos_token_id=None, eos_token_id=None
    )
    return GPT2LMHeadModel(config), {"input_ids": TOKENS, "labels": TOKENS}


def bert():
    batch = {"input_ids": TOKENS, "labels": TOKENS, "attention_mask": torch.ones_like(TOKENS)}
    return BertForMaskedLM(BertConfig(**SMALL)), BatchEncoding(batch)


def bert_without_its_pooler():
    return BertModel(BertConfig(**SMALL)), TOKENS, lambda net, ids: net(ids).last_hidden_state.sum()


def albert():
    config = AlbertConfig(**SMALL, embedding_size=16)
    return AlbertForMaskedLM(config), {"input_ids": TOKENS, "labels": TOKENS}


def t5():
    config = T5Config(num_layers=2, d_model=32, d_kv=8, num_heads=4, d_ff=64, vocab_size=99, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config), {"input_ids": TOKENS, "labels": TOKENS}


def llama():
    config = LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=True)
    return LlamaForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS}
