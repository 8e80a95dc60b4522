"""Which scheme to use for a model on a cluster: all of them simulated, compared with tuned dense, put into words."""

from ssfx.advice.ranking import Advice, Entry, advise, break_evens
from ssfx.advice.setting import Setting

__all__ = ["Advice", "Entry", "Setting", "advise", "break_evens"]
