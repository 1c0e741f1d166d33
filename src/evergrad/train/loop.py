"""The training loop: steps, evaluations, samples and checkpoints, and how each of them may end."""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import evergrad as eg
from evergrad import memory
from evergrad.core.rng.default_generator import using_generator
from evergrad.distributed.agreement import named
from evergrad.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointStore,
    read_checkpoint,
)
from evergrad.train.config import RunConfig, to_toml
from evergrad.train.console import Console, Progress, Silence
from evergrad.train.directory import RunDirectory, write_text
from evergrad.train.environment import environment
from evergrad.train.events import EventLog
from evergrad.train.exit_codes import ExitCode
from evergrad.train.fallback import diagnose
from evergrad.train.interrupts import Interrupts
from evergrad.train.memory_table import MemoryTable
from evergrad.train.meter import Meter
from evergrad.train.metrics import MetricsLog
from evergrad.train.packages import package
from evergrad.train.preflight import audit_gradients
from evergrad.train.ranks import Ranks
from evergrad.train.report import write_report
from evergrad.train.state import TrainingState
from evergrad.train.step import StepResult, TrainingStep, learning_rate
from evergrad.train.task import Sample, task_class

if TYPE_CHECKING:
    from evergrad.train.task import Task


class Trainer:
    """One start of a run: from the beginning, or from the newest checkpoint of its folder."""

    def __init__(self, config: RunConfig, directory: RunDirectory, console: Console) -> None:
        """Reads the data and makes the model, as they stand at the newest checkpoint. Nothing is
        written before :meth:`run`."""
        self.ranks: Ranks = Ranks()
        self.config = config
        self.directory = directory
        self.console: Console | Silence = console if self.ranks.is_first else Silence()
        self.store: CheckpointStore = CheckpointStore(
            directory.checkpoints, config.keep, self.ranks
        )
        if threads := self.ranks.threads(config.threads):
            eg.set_num_threads(threads)
        has_run = self.ranks.on_first(directory.holds_run)
        checkpoint = self._checkpoint() if has_run else None
        content = None if checkpoint is None else checkpoint.content
        self.task: Task = task_class(config.task)(config, content["extras"] if content else None)
        self.state: TrainingState = TrainingState(config, self.task, self.ranks)
        if content is not None:
            self.state.restore(content)
            self.console.say(
                f"{directory.path}: going on after step {self.state.step} of {config.steps}"
            )
        self._offset = content["metrics_offset"] if content else 0
        self.meter: Meter = Meter(self.state)
        self.unsaved: OSError | None = None  # why the newest state is not on disk

    def _checkpoint(self) -> Checkpoint | None:
        """The newest sound checkpoint; None if the run has not written any yet."""
        path = self.ranks.on_first(self._newest_checkpoint)
        return None if path is None else read_checkpoint(path)

    def _newest_checkpoint(self) -> Path | None:
        self.directory.take()
        has_some = bool(self.store.paths())
        found = self.store.newest(self.console.warn)
        if has_some and found is None:
            raise CheckpointError(f"every checkpoint in {self.store.folder} is damaged")
        return None if found is None else found.path

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> ExitCode:
        """Train to the end, or to whatever ends it before; everything is saved and told."""
        with ExitStack() as stack:
            stack.callback(self.directory.release)
            if self._has_ended():
                self.console.say(
                    f"nothing is left to do after step {self.state.step}; for more of it: "
                    f"--resume --steps {2 * max(self.state.step, self.config.steps)}"
                )
                return ExitCode.DONE
            interrupts = stack.enter_context(Interrupts())
            stack.enter_context(using_generator(self.state.generator))
            self._introduce()
            self._open(stack)
            if self.state.step == 0:
                self._save(best=False)
            self.console.start(self.state.step, self.config.steps)
            return self._conclude(self._train(interrupts))

    def _open(self, stack: ExitStack) -> None:
        """Make the folder and its logs; from here on the run leaves traces."""
        self.ranks.on_first(lambda: self.directory.prepare(self.config))
        self.ranks.on_first(self._note_machine)
        # Ranks other than the first write their lines nowhere.
        metrics = self.directory.metrics if self.ranks.is_first else Path(os.devnull)
        self.metrics: MetricsLog = stack.enter_context(closing(MetricsLog(metrics, self._offset)))
        first = self.state.step + 1
        events = self.directory.events if self.ranks.is_first else None
        self.events: EventLog = stack.enter_context(closing(EventLog(events, first)))
        stack.callback(self.console.stop)
        if self.metrics.missing:
            self.console.warn(f"{self.metrics.missing} bytes of {self.directory.metrics} are lost")

    def _note_machine(self) -> None:
        """Write down what is trained on what, for the report; kept from the first start on."""
        if self.directory.about.exists():
            return
        count = sum(p.numel() for p in self.state.model.parameters())
        about = {
            "parameters": count, "started": time.strftime("%Y-%m-%d %H:%M"),
            "machine": environment(),
        }  # fmt: skip
        try:
            write_text(self.directory.about, json.dumps(about, indent=1))
        except OSError as error:
            self.console.warn(f"{self.directory.about} could not be written: {error}")

    def _introduce(self) -> None:
        """Tell what is going to be trained, check its gradients, plan its memory."""
        count = sum(p.numel() for p in self.state.model.parameters())
        ranks = f" on {self.ranks.size} ranks" if self.ranks.size > 1 else ""
        self.console.say(
            f"{self.config.task}: {count:,} parameters{ranks}, run in {self.directory.path}"
        )
        self.console.say(str(audit_gradients(self.state)))
        self.step: TrainingStep = self.state.training_step()
        self.table: MemoryTable = MemoryTable(self.state, self.step)
        rows = [(name, planned, note) for name, planned, _, note in self.table.as_text_rows()]
        self.console.table("memory plan", ("", "bytes", ""), rows)

    def _train(self, interrupts: Interrupts) -> ExitCode:
        """The loop; gives how it ended."""
        state, config = self.state, self.config
        while not self._has_ended():
            result = self.meter.time(self.step)
            if not result.is_finite:
                what = f"loss {result.loss}, norm of gradients {result.norm}"
                return self._fall_back(state.step, what + self._ranks_not_finite(result))
            state.step += 1
            is_last = state.step == config.steps
            if is_last or state.step % config.log_every == 0:
                self._log(result)
            improved = (is_last or _is_due(state.step, config.evaluate_every)) and self._evaluate()
            if is_last or _is_due(state.step, config.sample_every):
                self._sample()
            received = self._agreed(interrupts.received)
            ends = received is not None or self._has_ended()
            if ends or improved or _is_due(state.step, config.checkpoint_every):
                if not state.is_finite():
                    return self._fall_back(state.step - 1, "weights are not finite")
                self._save(best=improved)
            if received is not None:
                return received
        return ExitCode.DONE

    def _agreed(self, received: ExitCode | None) -> ExitCode | None:
        """A signal that any rank received, so that all stop after the same step."""
        found = self.ranks.greatest(0 if received is None else int(received))
        return ExitCode(found) if found else None

    def _ranks_not_finite(self, result: StepResult) -> str:
        """Which ranks have a loss that is not finite."""
        if self.ranks.size == 1:
            return ""
        losses = self.ranks.gathered(result.own)
        bad = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
        return f"; the loss is not finite on {named(bad)}" if bad else ""

    def _has_ended(self) -> bool:
        return self.state.step >= self.config.steps or self._has_stalled()

    def _has_stalled(self) -> bool:
        return 0 < self.config.patience <= self.state.stale

    # -- its end ------------------------------------------------------------------------------

    def _conclude(self, code: ExitCode) -> ExitCode:
        """Say how the run ended and write its report."""
        self.console.stop()
        if self.meter.steps and code != ExitCode.NOT_FINITE and self.ranks.is_first:
            self._compare_memory()
        if code == ExitCode.DONE and self._has_stalled():
            self.console.say(f"stopped early: {self.state.stale} evaluations without progress")
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            self.console.say(
                f"stopped after step {self.state.step}; go on with: "
                f"evergrad train {self.directory.path} --resume"
            )
        else:
            self._report()
        if self.events.problem is not None:
            self.console.warn(f"TensorBoard's events are not complete: {self.events.problem}")
        if self.unsaved is not None and code != ExitCode.NOT_FINITE:
            self.console.fail(f"the newest state is not saved: {self.unsaved}")
            return ExitCode.NOT_SAVED
        return code

    def _compare_memory(self) -> None:
        """Tell and keep measured against planned memory."""
        self.table.measure(self.meter)
        columns = ("", "planned", "measured", "")
        self.console.table("memory in bytes", columns, self.table.as_text_rows())
        try:
            write_text(self.directory.memory, json.dumps(self.table.as_data()))
        except OSError as error:
            self.console.warn(f"{self.directory.memory} could not be written: {error}")

    def _report(self) -> None:
        """Draw the curves and write the page; what hinders that does not spoil the run."""
        if not self.ranks.is_first:
            return
        try:
            page = write_report(self.directory.path, [self.config.task])[-1]
        except (OSError, ImportError) as error:
            self.console.warn(f"the report could not be written: {error}")
        else:
            self.console.say(f"report: {page}")

    # -- what happens at intervals --------------------------------------------------------------

    def _log(self, result: StepResult) -> None:
        now = memory.stats()
        rate = self.meter.rate(self.task.units_per_batch * self.config.accumulate)
        lr = learning_rate(self.config.optimizer, self.state.step - 1, self.config.steps)
        values = {"loss": result.loss, "lr": lr, "norm": result.norm, "units_per_second": rate}
        self.metrics.write({
            "step": self.state.step, **values, "live": now["live"], "peak": self.meter.peak,
            "time": self.meter.seconds(),
        })  # fmt: skip
        self.events.scalars(self.state.step, values)
        self.console.progress(Progress(
            self.state.step, self.config.steps, result.loss, rate, self.task.unit, lr, now["live"],
            self.meter.peak, self.ranks.size,
        ))  # fmt: skip

    def _evaluate(self) -> bool:
        """Judge the model on held-out data; returns whether it is the best so far."""
        found = self.ranks.on_first(self._held_out)
        improved = self.state.note_evaluation(found["loss"])
        self.metrics.write({"step": self.state.step, "evaluation": found})
        names = {f"evaluation/{name}": value for name, value in found.items()}
        self.events.scalars(self.state.step, names)
        told = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
        self.console.say(f"step {self.state.step}  held-out {told}{'  (best)' * improved}")
        return improved

    def _held_out(self) -> dict[str, float]:
        with self.state.evaluated_model() as model:
            return {name: float(value) for name, value in self.task.evaluate(model).items()}

    def _sample(self) -> None:
        """Show and keep something the model makes up."""
        if not self.ranks.is_first:
            return
        with self.state.evaluated_model() as model:
            sample = self.task.sample(model, self.config.seed)
        if sample is None:
            return
        if sample.text is not None:
            self.console.sample(sample.text)
            self.events.text(self.state.step, "sample", sample.text)
            self.metrics.write({"step": self.state.step, "sample": {"text": sample.text}})
        if sample.image is not None:
            self._keep_image(sample)

    def _keep_image(self, sample: Sample) -> None:
        path = self.directory.samples / f"step-{self.state.step:06d}.png"
        try:
            package("PIL.Image").fromarray(sample.image).save(path)
        except OSError as error:
            self.console.warn(f"the sample {path} could not be written: {error}")
            return
        relative = str(path.relative_to(self.directory.path))
        self.console.say(f"step {self.state.step}  sample in {path}")
        self.events.image(self.state.step, "sample", sample.image)
        self.metrics.write({"step": self.state.step, "sample": {"image": relative}})

    def _save(self, *, best: bool) -> None:
        """Write a checkpoint. If that fails the older ones stay and training continues."""
        self.state.seconds = self.meter.seconds()
        self.events.flush()
        try:
            offset = self.ranks.on_first(self.metrics.sync)
            content = {
                **self.state.capture(), "config": to_toml(self.config), "metrics_offset": offset,
            }  # fmt: skip
            self.store.write(content, best=best)
        except OSError as error:
            self.unsaved = error
            older = "older checkpoints are kept" if self.store.paths() else "there is no other yet"
            self.console.warn(
                f"step {self.state.step} could not be saved ({error}); {older}, training continues "
                "and tries again at the next interval"
            )
        else:
            self.unsaved = None

    # -- numbers that are not finite --------------------------------------------------------------

    def _fall_back(self, failed: int, what: str) -> ExitCode:
        """Find out where numbers stopped being finite, and leave the state before that."""
        self.console.stop()
        self.console.fail(f"step {failed + 1}: {what}")
        checkpoint = self._checkpoint()
        if checkpoint is None:
            self.console.fail("there is no checkpoint to go back to")
            return ExitCode.NOT_FINITE
        if self.ranks.size > 1:  # a rank that raises would leave the others waiting
            self.console.say(
                f"the state after step {checkpoint.step} is saved; to see which operation it was, "
                f"go on with one rank: evergrad train {self.directory.path} --resume"
            )
            return ExitCode.NOT_FINITE
        self.console.say(f"repeating from step {checkpoint.step}, looking at every value ...")
        found = diagnose(checkpoint, self.config, self.task, failed)
        good = checkpoint.step
        if found.reason is None:
            self.console.say("it did not happen again: suspect the memory or the processor")
        else:
            self.console.say(f"step {found.state.step + 1}: {found.reason}")
            good = self._keep_last_good(found.state, checkpoint.step)
        self.console.say(
            f"the last good state, after step {good}, is saved; go on for example with:\n  evergrad"
            f" train {self.directory.path} --resume --lr {self.config.optimizer.lr / 3:.1g}"
        )
        return ExitCode.NOT_FINITE

    def _keep_last_good(self, state: TrainingState, saved: int) -> int:
        """Save the state before the step that failed; gives the step of the newest that is saved.

        Repeated steps are compiled; if the run is not, their state is a little different from the
        run's own and not kept.
        """
        if self.config.eager:
            return saved
        if state.step == self.state.step:  # nothing was evaluated since
            state.best, state.stale = self.state.best, self.state.stale
        self.state = self.meter.state = state
        self.metrics.cut_after(state.step)
        self._save(best=False)
        return saved if self.unsaved else state.step


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
