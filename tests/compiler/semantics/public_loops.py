"""Training loops as public repositories have them: language models, PPO, diffusion, image models,
schedules by hand, averages of weights, callbacks, gradient accumulation."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import random
from collections import defaultdict, deque
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .registry import Seen, batch, case, layer, mlp, ramp, weights


@case
def a_language_model_with_accumulation(lib: Any, wrap: Any) -> Seen:
    """nanoGPT: a cosine schedule by hand, micro steps, clipping, gradients set to None."""
    model = mlp(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    warmup_iters, lr_decay_iters, learning_rate, min_lr = 2, 8, 6e-2, 6e-3
    gradient_accumulation_steps, grad_clip = 2, 1.0

    def get_lr(it):
        if it < warmup_iters:
            return learning_rate * (it + 1) / (warmup_iters + 1)
        if it > lr_decay_iters:
            return min_lr
        decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
        assert 0 <= decay_ratio <= 1
        coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
        return min_lr + coeff * (learning_rate - min_lr)

    def step(xs, ys, iter_num):
        lr = get_lr(iter_num)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        for micro_step in range(gradient_accumulation_steps):
            loss = lib.nn.functional.mse_loss(model(xs[micro_step]), ys[micro_step])
            loss = loss / gradient_accumulation_steps
            loss.backward()
        if grad_clip != 0.0:
            lib.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item() * gradient_accumulation_steps

    step = wrap(step)
    for n in range(11):
        xs = [batch(lib, n + k) for k in range(2)]
        ys = [batch(lib, n + k, 4, 2) for k in range(2)]
        yield step(xs, ys, n), weights(model), optimizer.param_groups[0]["lr"]


@case
def a_language_model_with_dropout_and_weight_tying(lib: Any, wrap: Any) -> Seen:
    class GPT(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = lib.nn.ModuleDict(
                {"wte": lib.nn.Embedding(5, 3), "drop": lib.nn.Dropout(0.25)}
            )
            self.lm_head = lib.nn.Linear(3, 5, bias=False)
            self.transformer["wte"].weight = self.lm_head.weight

        def forward(self, idx, targets=None):
            x = self.transformer["drop"](self.transformer["wte"](idx))
            if targets is not None:
                logits = self.lm_head(x)
                flat = logits.view(-1, logits.size(-1))
                loss = lib.nn.functional.cross_entropy(flat, targets.view(-1), ignore_index=-1)
            else:
                logits, loss = self.lm_head(x[:, [-1], :]), None
            return logits, loss

    model = GPT()
    with lib.no_grad():
        model.lm_head.weight.copy_(ramp(lib, 5, 3))
    model.transformer["drop"].p = 0.0
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.05)

    def step(idx, targets):
        logits, loss = model(idx, targets)
        if loss is not None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return logits.detach()

    step = wrap(step)
    for n in range(6):
        idx = (lib.arange(6).reshape(2, 3) + n) % 5
        yield step(idx, (idx + 1) % 5 if n % 3 else None), weights(model)


@case
def proximal_policy_optimization(lib: Any, wrap: Any) -> Seen:
    """CleanRL: an annealed rate, clipped ratios, clip fractions in a list, early stop by kl."""

    @dataclass
    class Args:
        learning_rate: float = 0.05
        clip_coef: float = 0.2
        ent_coef: float = 0.01
        vf_coef: float = 0.5
        norm_adv: bool = True
        clip_vloss: bool = True
        target_kl: float | None = None

    args = Args()
    actor, critic = layer(lib, 3, 2), layer(lib, 3, 1)
    optimizer = lib.optim.Adam([*actor.parameters(), *critic.parameters()], lr=args.learning_rate)
    clipfracs = []

    def step(obs, actions, logprobs, advantages, returns, values, iteration):
        frac = 1.0 - (iteration - 1.0) / 10
        optimizer.param_groups[0]["lr"] = frac * args.learning_rate
        logp = actor(obs).log_softmax(-1)
        newlogprob = logp.gather(1, actions[:, None]).squeeze(1)
        entropy = -(logp.exp() * logp).sum(-1)
        logratio = newlogprob - logprobs
        ratio = logratio.exp()
        with lib.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfracs.append(((ratio - 1.0).abs() > args.clip_coef).float().mean().item())
        if args.norm_adv:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        pg_loss1 = -advantages * ratio
        pg_loss2 = -advantages * lib.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
        pg_loss = lib.max(pg_loss1, pg_loss2).mean()
        newvalue = critic(obs).view(-1)
        if args.clip_vloss:
            v_loss_unclipped = (newvalue - returns) ** 2
            v_clipped = values + lib.clamp(newvalue - values, -args.clip_coef, args.clip_coef)
            v_loss = 0.5 * lib.max(v_loss_unclipped, (v_clipped - returns) ** 2).mean()
        else:
            v_loss = 0.5 * ((newvalue - returns) ** 2).mean()
        loss = pg_loss - args.ent_coef * entropy.mean() + v_loss * args.vf_coef
        optimizer.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
        optimizer.step()
        if args.target_kl is not None and approx_kl > args.target_kl:
            return None
        return pg_loss.item(), v_loss.item(), np.mean(clipfracs)

    step = wrap(step)
    for n in range(7):
        if n == 3:
            args.clip_vloss = False
        if n == 5:
            args.target_kl = 1e-9
        actions = (lib.arange(4) + n) % 2
        row = ramp(lib, 4, start=0.1 * n)
        found = step(batch(lib, n), actions, row - 1, lib.sin(row * 9), row * 2, row, n + 1)
        yield found, clipfracs, weights(actor), weights(critic)


@case
def denoising_diffusion(lib: Any, wrap: Any) -> Seen:
    """DDPM: a schedule of noise in buffers, timesteps drawn, an average of the weights."""

    class Diffusion(lib.nn.Module):
        def __init__(self, timesteps=5):
            super().__init__()
            self.model, self.num_timesteps = layer(lib, 3, 3), timesteps
            betas = lib.linspace(0.1, 0.5, timesteps)
            self.register_buffer("alphas_cumprod", lib.cumprod(1.0 - betas, 0))

        def q_sample(self, x_start, t, noise):
            a = self.alphas_cumprod.gather(-1, t).reshape(-1, 1)
            return a.sqrt() * x_start + (1 - a).sqrt() * noise

        def forward(self, x, t, noise=None):
            noise = lib.ones_like(x) * 0.1 if noise is None else noise
            return lib.nn.functional.l1_loss(self.model(self.q_sample(x, t, noise)), noise)

    diffusion = Diffusion()
    ema_model = copy.deepcopy(diffusion)
    optimizer = lib.optim.Adam(diffusion.parameters(), lr=0.01)

    def update_moving_average(ma_model, current_model, beta=0.9):
        pairs = zip(current_model.parameters(), ma_model.parameters(), strict=True)
        for current_params, ma_params in pairs:
            old_weight, up_weight = ma_params.data, current_params.data
            ma_params.data = old_weight * beta + (1 - beta) * up_weight

    state = {"step": 0}

    def step(x, t):
        loss = diffusion(x, t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if state["step"] % 2 == 0:
            update_moving_average(ema_model, diffusion)
        state["step"] += 1
        return loss.item()

    step = wrap(step)
    for n in range(7):
        t = (lib.arange(4) + n) % 5
        yield step(batch(lib, n), t), state["step"], weights(ema_model), weights(diffusion)


@case
def an_image_model_with_meters_and_a_scaler(lib: Any, wrap: Any) -> Seen:
    """timm: meters in an ordered dictionary, an update count, a schedule by updates."""

    class AverageMeter:
        def __init__(self):
            self.val = self.avg = self.sum = self.count = 0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

    class Scheduler:
        def __init__(self, optimizer, update_on="lr"):
            self.optimizer, self.base_values = optimizer, [0.1]

        def step_update(self, num_updates, metric=None):
            for group, base in zip(self.optimizer.param_groups, self.base_values, strict=True):
                group["lr"] = base / (1 + num_updates)

    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler, losses_m, top1_m = Scheduler(optimizer), AverageMeter(), AverageMeter()
    num_updates = 0

    def accuracy(output, target, topk=(1,)):
        maxk = min(max(topk), output.size()[1])
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.reshape(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk]

    def step(x, y):
        nonlocal num_updates
        output = model(x)
        loss = lib.nn.functional.cross_entropy(output, y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        num_updates += 1
        losses_m.update(loss.item(), x.size(0))
        top1_m.update(accuracy(output.detach(), y)[0].item(), x.size(0))
        scheduler.step_update(num_updates=num_updates, metric=losses_m.avg)

    step = wrap(step)
    for n in range(7):
        step(batch(lib, n), (lib.arange(4) + n) % 2)
        yield losses_m.avg, top1_m.avg, top1_m.count, optimizer.param_groups[0]["lr"]
        yield weights(model)


@case
def accumulation_without_synchronization(lib: Any, wrap: Any) -> Seen:
    class Wrapped:
        def __init__(self, module):
            self.module, self.require_backward_grad_sync, self.synced = module, True, 0

        @contextlib.contextmanager
        def no_sync(self):
            old = self.require_backward_grad_sync
            self.require_backward_grad_sync = False
            try:
                yield
            finally:
                self.require_backward_grad_sync = old

        def __call__(self, x):
            if self.require_backward_grad_sync:
                self.synced += 1
            return self.module(x)

    ddp = Wrapped(layer(lib))
    optimizer = lib.optim.SGD(ddp.module.parameters(), lr=0.1)
    accumulate = 2

    def step(x, i):
        is_update = (i + 1) % accumulate == 0
        with contextlib.nullcontext() if is_update else ddp.no_sync():
            loss = ddp(x).square().mean() / accumulate
            loss.backward()
        if is_update:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        if n == 6:
            accumulate = 3
        yield step(batch(lib, n), n), ddp.synced, weights(ddp.module)


@case
def a_learning_rate_finder(lib: Any, wrap: Any) -> Seen:
    class Finder:
        def __init__(self, model, optimizer, start=1e-3, end=1.0, num=8):
            self.model, self.optimizer, self.num = model, optimizer, num
            self.mult, self.lr, self.best = (end / start) ** (1 / num), start, float("inf")
            self.history, self.avg, self.beta, self.batch_num = defaultdict(list), 0.0, 0.9, 0

        def step(self, x):
            self.batch_num += 1
            self.optimizer.param_groups[0]["lr"] = self.lr
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.avg = self.beta * self.avg + (1 - self.beta) * loss.item()
            smooth = self.avg / (1 - self.beta**self.batch_num)
            if self.batch_num > 1 and smooth > 4 * self.best:
                return True
            if smooth < self.best or self.batch_num == 1:
                self.best = smooth
            self.history["lr"].append(self.lr)
            self.history["loss"].append(smooth)
            self.lr *= self.mult
            return False

    model = layer(lib)
    finder = Finder(model, lib.optim.SGD(model.parameters(), lr=0.1))
    step = wrap(finder.step)
    for n in range(8):
        yield step(batch(lib, n)), finder.lr, finder.best, dict(finder.history), weights(model)


@case
def a_progress_bar_with_a_postfix(lib: Any, wrap: Any) -> Seen:
    class Bar:
        def __init__(self):
            self.postfix, self.desc, self.n = {}, "", 0

        def set_postfix(self, ordered=None, **kwargs):
            self.postfix = dict(ordered or {}, **kwargs)

        def set_description(self, text):
            self.desc = text

        def update(self, n=1):
            self.n += n

    bar, model = Bar(), layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, epoch):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        bar.update()
        bar.set_postfix(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
        bar.set_description(f"epoch {epoch}")
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), n // 3), bar.postfix, bar.desc, bar.n


@case
def a_progress_bar_with_formatted_losses(lib: Any, wrap: Any) -> Seen:
    class Bar:
        def __init__(self):
            self.postfix = {}

        def set_postfix(self, **kwargs):
            self.postfix.update(kwargs)

    bar, history = Bar(), []

    def step(x):
        loss = x.square().mean()
        bar.set_postfix(loss=f"{loss.item():.3f}", top=f"{x.max():.2f}")
        history.append(f"{loss.item():.4f}")
        return loss

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n)), bar.postfix, history


@case
def mixup_with_numpy(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def mixup_data(x, y, alpha=1.0):
        lam = np.random.beta(alpha, alpha) if alpha > 0 else 1
        index = lib.flip(lib.arange(x.size(0)), (0,))
        return lam * x + (1 - lam) * x[index, :], y, y[index], lam

    def step(x, y):
        mixed, y_a, y_b, lam = mixup_data(x, y)
        out = model(mixed)
        ce = lib.nn.functional.cross_entropy
        loss = lam * ce(out, y_a) + (1 - lam) * ce(out, y_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), lam

    step = wrap(step)
    for n in range(5):
        yield step(batch(lib, n), (lib.arange(4) + n) % 2), weights(model)


@case
def cutmix_with_a_random_box(lib: Any, wrap: Any) -> Seen:
    def rand_bbox(size, lam):
        width, height = size[2], size[3]
        cut_rat = np.sqrt(1.0 - lam)
        cut_w, cut_h = int(width * cut_rat), int(height * cut_rat)
        cx, cy = np.random.randint(width), np.random.randint(height)
        bbx1, bbx2 = np.clip(cx - cut_w // 2, 0, width), np.clip(cx + cut_w // 2, 0, width)
        bby1, bby2 = np.clip(cy - cut_h // 2, 0, height), np.clip(cy + cut_h // 2, 0, height)
        return bbx1, bby1, bbx2, bby2

    def step(x):
        lam = np.random.beta(1.0, 1.0)
        bbx1, bby1, bbx2, bby2 = rand_bbox(x.size(), lam)
        x[:, :, bbx1:bbx2, bby1:bby2] = x.flip(0)[:, :, bbx1:bbx2, bby1:bby2]
        return 1 - ((bbx2 - bbx1) * (bby2 - bby1) / (x.size()[-1] * x.size()[-2]))

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 2, 1, 4, 4, start=float(n))
        yield step(x), x


@case
def epsilon_greedy_with_a_replay_buffer(lib: Any, wrap: Any) -> Seen:
    class Transition(NamedTuple):
        state: Any
        action: int
        reward: float

    memory, net = deque(maxlen=4), layer(lib, 3, 2)
    s = {"steps_done": 0}

    def select_action(state):
        eps = 0.1 + 0.8 * math.exp(-1.0 * s["steps_done"] / 3)
        s["steps_done"] += 1
        if random.random() > eps:
            with lib.no_grad():
                return net(state).max(0).indices.view(1)
        return lib.tensor([random.randrange(2)])

    def step(state, reward):
        action = select_action(state)
        memory.append(Transition(state, s["steps_done"], reward))
        return action

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)[0], 0.5 * n), list(memory), s["steps_done"]


@case
def soft_updates_of_a_target(lib: Any, wrap: Any) -> Seen:
    policy, target = layer(lib), layer(lib)
    optimizer = lib.optim.AdamW(policy.parameters(), lr=0.05, amsgrad=True)
    tau = 0.1

    def step(x):
        loss = lib.nn.functional.smooth_l1_loss(policy(x), target(x).detach() + 1)
        optimizer.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        target_state, policy_state = target.state_dict(), policy.state_dict()
        for key in policy_state:
            target_state[key] = policy_state[key] * tau + target_state[key] * (1 - tau)
        target.load_state_dict(target_state)
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            tau = 0.5
        yield step(batch(lib, n)), weights(target), weights(policy)


@case
def an_average_with_store_and_restore(lib: Any, wrap: Any) -> Seen:
    class EMA:
        def __init__(self, model, decay):
            self.model, self.decay, self.shadow, self.backup = model, decay, {}, {}
            for name, param in model.named_parameters():
                if param.requires_grad:
                    self.shadow[name] = param.data.clone()

        def update(self):
            for name, param in self.model.named_parameters():
                if param.requires_grad:
                    assert name in self.shadow
                    average = (1.0 - self.decay) * param.data + self.decay * self.shadow[name]
                    self.shadow[name] = average.clone()

        def apply_shadow(self):
            for name, param in self.model.named_parameters():
                self.backup[name] = param.data
                param.data = self.shadow[name]

        def restore(self):
            for name, param in self.model.named_parameters():
                param.data = self.backup[name]
            self.backup = {}

    model = layer(lib)
    ema, optimizer = EMA(model, 0.5), lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        ema.update()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), ema.shadow
        if n % 2:
            ema.apply_shadow()
            yield model(batch(lib, n)).detach()
            ema.restore()


@case
def early_stopping_with_a_counter(lib: Any, wrap: Any) -> Seen:
    class EarlyStopping:
        def __init__(self, patience=2, delta=0.0):
            self.patience, self.delta, self.counter = patience, delta, 0
            self.best_score, self.early_stop, self.val_loss_min = None, False, np.inf

        def __call__(self, val_loss):
            score = -val_loss
            if self.best_score is None:
                self.best_score = score
            elif score < self.best_score + self.delta:
                self.counter += 1
                if self.counter >= self.patience:
                    self.early_stop = True
            else:
                self.best_score, self.counter = score, 0

    stopping = EarlyStopping()

    def step(x):
        loss = x.square().mean()
        stopping(loss.item())
        return loss

    step = wrap(step)
    for scale in (3.0, 2.0, 1.0, 2.0, 0.5, 4.0, 3.0, 3.0):
        yield step(ramp(lib, 3) * scale), stopping.counter, stopping.best_score, stopping.early_stop


@case
def callbacks_by_name(lib: Any, wrap: Any) -> Seen:
    class Callbacks:
        def __init__(self):
            self._callbacks = {"on_batch_end": [], "on_loss": []}

        def register(self, hook, name="", callback=None):
            self._callbacks[hook].append({"name": name, "callback": callback})

        def run(self, hook, *args, **kwargs):
            for logger in self._callbacks[hook]:
                logger["callback"](*args, **kwargs)

    callbacks, seen = Callbacks(), {"n": 0, "last": None}

    def count(loss, ni):
        seen["n"] += 1
        seen["last"] = loss

    callbacks.register("on_batch_end", callback=count)

    def step(x, ni):
        loss = x.square().mean()
        callbacks.run("on_batch_end", loss.detach(), ni=ni)
        return loss

    step = wrap(step)
    for n in range(7):
        if n == 4:
            callbacks.register("on_batch_end", callback=lambda loss, ni: seen.update(n=-ni))
        yield step(batch(lib, n), n), dict(seen)


@case
def a_configuration_as_a_dictionary(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class Optim:
        lr: float = 0.1
        milestones: list = field(default_factory=lambda: [2, 4])

    @dataclass
    class Config:
        name: str = "base"
        optim: Optim = field(default_factory=Optim)

    cfg, w = Config(), lib.ones(3, requires_grad=True)

    def step(x, epoch):
        held = asdict(cfg)
        lr = held["optim"]["lr"] * 0.1 ** sum(epoch >= m for m in held["optim"]["milestones"])
        loss = (w * x).square().sum()
        (grad,) = lib.autograd.grad(loss, w)
        with lib.no_grad():
            w.sub_(grad, alpha=lr)
        return loss.detach(), {**held, "lr": lr}

    step = wrap(step)
    for n in range(7):
        if n == 3:
            cfg.optim.lr = 0.05
        if n == 5:
            cfg.optim.milestones.append(5)
        yield step(ramp(lib, 3), n), w


@case
def a_warmup_by_iteration(lib: Any, wrap: Any) -> Seen:
    """YOLO: rates and momentum by np.interp, accumulation by the iteration."""
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    nw, last = 4, [-1]
    optimizer.param_groups[0]["initial_lr"] = 0.1

    def step(x, ni):
        accumulate = 1
        if ni <= nw:
            xi = [0, nw]
            accumulate = max(1, np.interp(ni, xi, [1, 2]).round())
            for group in optimizer.param_groups:
                group["lr"] = float(np.interp(ni, xi, [0.0, group["initial_lr"]]))
                if "momentum" in group:
                    group["momentum"] = float(np.interp(ni, xi, [0.8, 0.937]))
        loss = model(x).square().mean()
        loss.backward()
        if ni - last[0] >= accumulate:
            optimizer.step()
            optimizer.zero_grad()
            last[0] = ni
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        group = optimizer.param_groups[0]
        yield step(batch(lib, n), n), weights(model), group["lr"], group["momentum"], list(last)


@case
def two_optimizers_in_turn(lib: Any, wrap: Any) -> Seen:
    """A generator and a critic, the one trained at every second step."""
    gen, critic = layer(lib, 3, 3), layer(lib, 3, 1)
    opt_g = lib.optim.Adam(gen.parameters(), lr=0.05, betas=(0.5, 0.999))
    opt_d = lib.optim.Adam(critic.parameters(), lr=0.05, betas=(0.5, 0.999))
    batches_done, losses = 0, {"d": None, "g": None}

    def step(real, z):
        nonlocal batches_done
        opt_d.zero_grad()
        fake = gen(z).detach()
        loss_d = -critic(real).mean() + critic(fake).mean()
        loss_d.backward()
        opt_d.step()
        for p in critic.parameters():
            p.data.clamp_(-0.1, 0.1)
        losses["d"] = loss_d.item()
        if batches_done % 2 == 0:
            opt_g.zero_grad()
            loss_g = -critic(gen(z)).mean()
            loss_g.backward()
            opt_g.step()
            losses["g"] = loss_g.item()
        batches_done += 1

    step = wrap(step)
    for n in range(7):
        step(batch(lib, n), batch(lib, n + 3))
        yield dict(losses), weights(gen), weights(critic), batches_done


@case
def frozen_for_some_steps(lib: Any, wrap: Any) -> Seen:
    model, s = mlp(lib), {"iter": 0}
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        for param in model[0].parameters():
            param.requires_grad = s["iter"] >= 3
        s["iter"] += 1
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), weights(model), [p.requires_grad for p in model.parameters()]


@case
def a_metric_logger(lib: Any, wrap: Any) -> Seen:
    """DETR: smoothed values by name, found by __getattr__."""

    class SmoothedValue:
        def __init__(self, window_size=3):
            self.deque, self.total, self.count = deque(maxlen=window_size), 0.0, 0

        def update(self, value, n=1):
            self.deque.append(value)
            self.count += n
            self.total += value * n

        @property
        def global_avg(self):
            return self.total / max(self.count, 1)

    class MetricLogger:
        def __init__(self):
            self.meters = defaultdict(SmoothedValue)

        def update(self, **kwargs):
            for k, v in kwargs.items():
                if isinstance(v, lib.Tensor):
                    v = v.item()
                assert isinstance(v, (float, int))
                self.meters[k].update(v)

        def __getattr__(self, attr):
            if attr in self.meters:
                return self.meters[attr]
            if attr in self.__dict__:
                return self.__dict__[attr]
            raise AttributeError(attr)

    logger = MetricLogger()

    def step(x, lr):
        loss = x.square().mean()
        logger.update(loss=loss, lr=lr)
        return loss, logger.loss.count

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), 0.1 / (n + 1)), logger.loss.global_avg, logger.lr.total
        yield list(logger.loss.deque)


@case
def a_reward_baseline(lib: Any, wrap: Any) -> Seen:
    """REINFORCE: the returns are summed up backwards into a deque."""
    policy = layer(lib, 3, 2)
    optimizer = lib.optim.Adam(policy.parameters(), lr=0.05)
    saved, rewards, s = [], [], {"running": 10.0}

    def step(xs, actions):
        for x, action, reward in zip(xs, actions, (1.0, 0.5, -1.0), strict=True):
            saved.append(policy(x).log_softmax(-1)[action])
            rewards.append(reward)
        s["running"] = 0.05 * sum(rewards) + 0.95 * s["running"]
        total, returns = 0, deque()
        for r in rewards[::-1]:
            total = r + 0.9 * total
            returns.appendleft(total)
        returns = lib.tensor(list(returns))
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = lib.stack([-p * r for p, r in zip(saved, returns, strict=True)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del rewards[:]
        del saved[:]
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n, 3), [n % 2, 0, 1]), weights(policy), rewards, s["running"]


@case
def label_smoothing_by_a_partial(lib: Any, wrap: Any) -> Seen:
    criterion = functools.partial(lib.nn.functional.cross_entropy, label_smoothing=0.1)
    model, holder = layer(lib), {"criterion": criterion}

    def step(x, y):
        model.zero_grad()
        loss = holder["criterion"](model(x), y)
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        if n == 2:
            criterion.keywords["label_smoothing"] = 0.3
        if n == 4:
            holder["criterion"] = functools.partial(criterion, reduction="sum")
        yield step(batch(lib, n), (lib.arange(4) + n) % 2), weights(model)


@case
def gradients_that_are_penalized(lib: Any, wrap: Any) -> Seen:
    critic = layer(lib, 3, 1)
    optimizer, lambda_gp = lib.optim.RMSprop(critic.parameters(), lr=0.01), 10

    def compute_gradient_penalty(real, fake):
        alpha = lib.tensor(np.linspace(0, 1, real.size(0)).astype(np.float32)).reshape(-1, 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        out = critic(mixed).square()
        (grads,) = lib.autograd.grad(
            outputs=out, inputs=mixed, grad_outputs=lib.ones_like(out), create_graph=True,
            retain_graph=True, only_inputs=True,
        )  # fmt: skip
        return ((grads.view(grads.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()

    def step(real, fake):
        optimizer.zero_grad()
        penalty = compute_gradient_penalty(real.data, fake.data)
        loss = -critic(real).mean() + critic(fake).mean() + lambda_gp * penalty
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "gp": penalty.item()}

    step = wrap(step)
    for n in range(5):
        if n == 3:
            lambda_gp = 1
        yield step(batch(lib, n), batch(lib, n + 2)), weights(critic)
