"""What every handle of `attach` has, and what it says where it is taken for the model or the optimizer."""

from typing import TYPE_CHECKING, Any

from ssfx.core.errors import near

_OF_MODELS = ("parameters", "named_parameters", "modules", "module", "to", "cuda", "cpu", "half", "apply", "compile")
_MEMBERS = {
    **dict.fromkeys(("backward", "zero_grad", "forward", "train", "eval"), "the script does that, as with DDP"),
    **dict.fromkeys(_OF_MODELS, "the model is as it was, and has that: attach changes no module"),
    **dict.fromkeys(("statistics", "metrics", "bytes", "sent_bytes", "time_ms"), "it is sync.stats()"),
    **dict.fromkeys(("close", "remove", "unwrap", "stop"), "it is sync.detach()"),
    **dict.fromkeys(("save", "checkpoint"), "it is sync.state_dict()"),
    **dict.fromkeys(("load", "resume"), "it is sync.load_state_dict(state)"),
    **dict.fromkeys(("register_comm_hook", "add_hook"), 'attach(..., scheme="topk") says what is exchanged'),
    **dict.fromkeys(
        ("set_density", "density", "compressor", "set_compressor"), "sync.detach(), and attach with another"
    ),
}
"""Members that people expect of the handle, and what to do."""


class _Steps(int):
    """A number of steps; it says so where it is taken for the optimizer's method."""

    def __call__(self, *_: Any, **__: Any) -> None:
        raise TypeError("sync.step is how many steps were made; to make one, write optimizer.step()")


class Handle:
    """What `attach` returns; classes of exchanges count in `_step`."""

    _step = 0

    @property
    def step(self) -> int:
        """Steps so far."""
        return _Steps(self._step)

    @step.setter
    def step(self, steps: int) -> None:
        self._step = int(steps)

    if not TYPE_CHECKING:  # for people; a type checker knows what there is

        def __call__(self, *_: Any, **__: Any) -> None:
            """Raise TypeError: it is no model."""
            raise TypeError("attach returns a handle, no model; write sync = ssfx.attach(model, ...), and call model")

        def __getattr__(self, name: str) -> Any:
            public = [one for one in dir(type(self)) if not one.startswith("_")]
            close = near(name, public) if not name.startswith("_") else []
            said = f"did you mean sync.{close[0]}?" if close else f"it has {', '.join(public)}"
            raise AttributeError(f"the handle of attach has no {name}; {_MEMBERS.get(name, said)}", name=name, obj=self)
