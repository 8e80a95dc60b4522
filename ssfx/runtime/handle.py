"""What every handle of `attach` has, and what it says where it is taken for the model or the optimizer."""

from typing import TYPE_CHECKING, Any

from ssfx.core.errors import near

_MEANT = {
    "backward zero_grad forward train eval clip": "the script does that, as with DDP",
    "parameters modules module to cuda half apply optimizer model": "the script has it, as before attach",
    "statistics metrics bytes sent_bytes time_ms": "it is sync.stats()",
    "close remove unwrap stop": "it is sync.detach()",
    "save checkpoint": "it is sync.state_dict()",
    "load resume": "it is sync.load_state_dict(state)",
    "allreduce all_reduce reduce sync average gradients": "backward does it, or sync.synchronize()",
    "register_comm_hook add_hook": 'attach(..., scheme="topk") says what is exchanged',
    "set_density density compressor": "sync.detach(), and attach with another",
}
_MEMBERS = {name: what for names, what in _MEANT.items() for name in names.split()}


class Handle:
    """What `attach` returns, where it is used as something else."""

    if not TYPE_CHECKING:  # for people; a type checker knows what there is

        def __call__(self, *_: Any, **__: Any) -> None:
            """Raise TypeError: it is no model, and no context."""
            raise TypeError("attach returns a handle; write sync = ssfx.attach(model, ...), and call model as before")

        __enter__ = __exit__ = __call__

        def __getattr__(self, name: str) -> Any:
            public = [one for one in dir(type(self)) if not one.startswith("_")]
            close = near(name, public) if not name.startswith("_") else []
            said = f"did you mean sync.{close[0]}?" if close else f"it has {', '.join(public)}"
            meant = next((_MEMBERS[word] for word in (name, *name.split("_")) if word in _MEMBERS), said)
            raise AttributeError(f"the handle of attach has no {name}; {meant}", name=name, obj=self)
