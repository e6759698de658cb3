"""``pipelines/methods/*.yaml``: the phases of a method, and what it is a control, variant or combination of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.catalogue import MERGES
from regft_core.schema import Inconsistency, Items, Layer, Name, OneOrMoreNames, Seed, Size, StrictModel, named_in
from regft_core.schema.training import MethodModel, PhaseModel

#: The parts of a method's file that hold settings.
SECTIONS = ("model", "regularisers", "training", "phases")
#: A source: ``paper: section or table``, ``ours: reason``, or ``code: owner/repository path:line; notes``.
SOURCE = r"^((paper|ours): \S.*|code: [\w.-]+/[\w.-]+ [^\s:]+:\d+(-\d+)?(; \S.*)?)$"
Source = Annotated[str, Field(pattern=SOURCE)]
#: Dotted path of a setting, or of several: ``regularisers.hype``, ``phases.members.repeat.vary``.
SettingPath = Annotated[str, Field(pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$")]
#: What a phase of a final model is: the mean of so many trainings on all rows, or of the evaluated runs.
Refit = Annotated[int, Field(ge=1, le=20)] | Literal["mean_of_runs"]
#: Options of one regulariser each; a mapping, so that none is listed twice and ``dvc exp run -S`` can name an option.
#: Its order never counts: what must come first is declared by the regularisers themselves.
Regularisers = dict[Name, dict[str, Any]]


class DataConfig(StrictModel):
    """Rows that a phase trains on; the rows of the cell when nothing is said."""

    task: Name | None = Field(None, description="another task's training rows")
    size: Size | None = Field(None, description="rows; those of the cell when absent, of another task all")
    labels: bool = Field(True, description="false: the text alone; its labels are neither read nor learned")
    split: float = Field(1.0, gt=0, le=1, description="share that is trained on; the rest is the validation share")
    steps: Literal["own", "full"] = Field(
        "own", description="full: over these rows, as many steps as all training rows of the cell's task would take"
    )


class RepeatConfig(StrictModel):
    """A phase that is run several times; its members are stored one by one, then merged."""

    times: int = Field(ge=1, le=100)
    merge: Annotated[str, named_in(MERGES)] = Field("mean", description="one of regft_core/training/merges")
    vary: Items[Literal["split", "order", "noise", "head"]] = ("split", "order", "noise")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        if self.scores and "split" in self.vary:
            yield ("vary",), f"merge: {self.merge} compares members on one validation share; take split out of vary"

    @property
    def scores(self) -> bool:
        return getattr(MERGES.load(self.merge), "SCORES", False)


class PhaseConfig(StrictModel):
    """One phase of a method: its data, its start, its regularisers and what it changes in the protocol."""

    method: Name | None = Field(
        None, description="another listed method, whose phases stand in for this one: trained once for both"
    )
    data: DataConfig = DataConfig()
    start: Name = Field("previous", description="previous, checkpoint, or the name of an earlier phase")
    model: PhaseModel | None = Field(None, description="another encoder for this phase, which is not the last one")
    repeat: RepeatConfig | None = None
    refit: Refit = Field(
        1,
        description="in a final model: mean of the weights of so many trainings on all rows, or of the evaluated runs",
    )
    seed: Seed | None = Field(None, description="a number: the phase is trained once for all seeds of the grid")
    regularisers: Regularisers = Field({})
    training: Layer = Field({})


class ControlPhase(StrictModel):
    """Changes of a control in one phase of its method."""

    data: dict[str, Any] = Field({})
    repeat: dict[str, Any] = Field({})
    seed: Seed | None = None
    regularisers: dict[Name, dict[str, Any] | None] = Field({}, description="null: without this regulariser")
    training: Layer = Field({})


class ControlConfig(ControlPhase):
    """One control of a method: what it changes, or ``compute: matched``, and what it shows."""

    why: str = Field(min_length=1, description="what the control lacks or has instead, in a few words")
    compute: Literal["matched"] | None = Field(None, description="plain fine-tuning with the method's compute")
    phases: dict[Name, ControlPhase] = Field({})

    def inconsistencies(self) -> Iterator[Inconsistency]:
        changed = sorted(self.model_fields_set - {"why", "compute"})
        if self.compute is None and not changed:
            yield (), "a control changes something; say what, or write compute: matched"
        for key in changed if self.compute is not None else ():
            yield (key,), f"compute: matched is plain fine-tuning, in which {key} changes nothing; remove one of them"


#: What a method says about itself and its family: it changes no run.
WORDS = frozenset(
    {
        *("description", "paper", "sources", "variant_of", "combines"),
        *("controls", "control_for", "controlled_by", "differs_in"),
    }
)


class MethodConfig(StrictModel):
    """One method: either one phase (``regularisers``, ``training``) or an ordered mapping of ``phases``."""

    description: str = ""
    paper: str = ""
    control_for: OneOrMoreNames = Field((), description="the methods that this arm controls for")
    controlled_by: OneOrMoreNames = Field((), description="methods with files of their own that control for it")
    differs_in: Items[SettingPath] = Field(
        (), description="the settings in which a control written by hand differs from its methods"
    )
    controls: dict[Name, ControlConfig] = Field({}, description="controls of this method: what each changes in it")
    variant_of: OneOrMoreNames = Field((), description="methods whose controls are also those of this one")
    combines: OneOrMoreNames = Field((), description="methods that this one puts together; each alone is a control")
    model: MethodModel = Field({}, description="how this method reads the encoder, shown in the report")
    regularisers: Regularisers = Field({})
    training: Layer = Field({})
    phases: dict[Name, PhaseConfig] | None = Field(
        None, description="in the order in which they run; the last is called finetune"
    )
    sources: dict[str, Source] = Field(
        {}, description="dotted path of a value or section of this file -> where it is from; defaults have their own"
    )

    def by_phase(self) -> dict[str, PhaseConfig]:
        if self.phases is not None:
            return dict(self.phases)
        return {"finetune": PhaseConfig(regularisers=self.regularisers, training=self.training)}

    def path(self, phase: str) -> tuple[str, ...]:
        """Return the keys under which the YAML describes a phase."""
        return ("phases", phase) if self.phases is not None else ()

    def inconsistencies(self) -> Iterator[Inconsistency]:
        if self.phases is not None:
            for key in ("regularisers", "training"):
                if key in self.model_fields_set:
                    yield (key,), f"{key} stands beside phases; move it into the phase that it belongs to"
            names = list(self.phases)
            if not names or names[-1] != "finetune":
                last = f"the last is '{names[-1]}'" if names else "there is none"
                yield ("phases",), f"phases must end with the phase 'finetune', {last}; name the last one so"
            for i, name in enumerate(names):
                yield from self._phase_inconsistencies(name, self.phases[name], names[:i])
        if bool(self.control_for) != bool(self.differs_in):
            given, other = ("control_for", "differs_in") if self.control_for else ("differs_in", "control_for")
            needs = "the methods, and the settings in which they differ from this one"
            yield (given,), f"{given} needs '{other}': {needs}; add {other}"

    def _phase_inconsistencies(self, name: str, phase: PhaseConfig, earlier: list[str]) -> Iterator[Inconsistency]:
        at, data = ("phases", name), phase.data
        if name in ("previous", "checkpoint"):
            yield at, f"'{name}' is a word of 'start'; give the phase another name"
        if phase.method is not None:
            beside = phase.model_fields_set - {"method"}
            if beside:
                message = f"'{name}' is the method '{phase.method}' as it is listed; set {sorted(beside)[0]} there"
                yield (*at, sorted(beside)[0]), f"{message}, or leave 'method' out"
            if name == "finetune":
                yield (*at, "method"), "the last phase is this method's own; name an earlier phase"
            return
        starts = ("previous", "checkpoint", *earlier)
        if phase.start not in starts:
            known = ", ".join(starts)
            message = f"'{name}' starts from '{phase.start}', which is not an earlier phase; allowed: {known}"
            yield (*at, "start"), message
        if phase.model and name == "finetune":
            message = "the last phase has the encoder of params.yaml, which is evaluated and exported"
            yield (*at, "model"), f"{message}; set model.name there, or name another encoder for an earlier phase"
        start = ["checkpoint", *earlier][-1] if phase.start == "previous" else phase.start
        if start in earlier and (self.phases or {})[start].model != phase.model:
            message = f"'{name}' starts from '{start}', which has another encoder; set start: checkpoint"
            yield (*at, "start"), f"{message}, or the same 'model' for both"
        if phase.refit == "mean_of_runs" and (start not in earlier or not (self.phases or {})[start].data.labels):
            message = f"the runs of '{name}' each draw a head, and a mean of such heads answers nothing; "
            yield (*at, "refit"), message + "start from a phase that learns one, or remove refit"
        if phase.repeat is not None and phase.refit not in (1, "mean_of_runs"):
            yield (*at, "refit"), f"'{name}' is a merge of {phase.repeat.times} trainings already; remove refit"
        if phase.repeat is not None and phase.repeat.scores and data.split == 1.0:
            message = f"'{name}' merges by scores but has no validation share; set data.split below 1"
            yield (*at, "repeat", "merge"), message
        if phase.seed is not None and data.task is None and data.size != "full":
            message = f"'{name}' has one seed for all, but the rows of a cell differ by seed; "
            yield (*at, "seed"), message + "set data.size: full or another data.task, or remove seed"
