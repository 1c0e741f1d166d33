"""Losses, targets and distributions whose values are checked or made inside the step."""

from __future__ import annotations

import math
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


@case
def targets_closed_over(lib: Any, wrap: Any) -> Seen:
    model, y = layer(lib), lib.tensor([0, 1, 1, 0])
    step = wrap(lambda x: lib.nn.functional.cross_entropy(model(x), y))
    for n in range(5):
        if n == 2:
            y.copy_(lib.tensor([1, 1, 1, 1]))
        yield step(batch(lib, n))


@case
def targets_rebound(lib: Any, wrap: Any) -> Seen:
    model, y = layer(lib), lib.tensor([0, 1, 1, 0])
    step = wrap(lambda x: lib.nn.functional.cross_entropy(model(x), y))
    for n in range(4):
        y = lib.arange(4) % (1 + n % 2)
        yield step(batch(lib, n))


@case
def targets_made_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 4)

    def step(x):
        logits = model(x)
        labels = lib.arange(x.shape[0])
        return lib.nn.functional.cross_entropy(logits, labels)

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n))


@case
def targets_from_the_model(lib: Any, wrap: Any) -> Seen:
    teacher, student = layer(lib), layer(lib)

    def step(x):
        student.zero_grad()
        with lib.no_grad():
            y = teacher(x).argmax(-1)
        loss = lib.nn.functional.cross_entropy(student(x), y)
        loss.backward()
        return loss.detach(), y

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), weights(student)


@case
def ignored_targets(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x, y: lib.nn.functional.cross_entropy(model(x), y, ignore_index=-100))
    for n in range(4):
        y = lib.tensor([0, 1, -100, n % 2])
        yield step(batch(lib, n), y)


@case
def label_smoothing_changed(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    loss = lib.nn.CrossEntropyLoss(label_smoothing=0.0)
    step = wrap(lambda x, y: loss(model(x), y))
    for n in range(4):
        loss.label_smoothing = 0.1 * n
        yield step(batch(lib, n), lib.tensor([0, 1, 0, 1]))


@case
def class_weights_changed(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    loss = lib.nn.CrossEntropyLoss(weight=lib.ones(2))
    step = wrap(lambda x, y: loss(model(x), y))
    for n in range(4):
        if n == 3:
            loss.weight = lib.tensor([0.1, 0.9])
        else:
            loss.weight[0] = 1.0 + n
        yield step(batch(lib, n), lib.tensor([0, 1, 0, 1]))


@case
def next_token_loss(lib: Any, wrap: Any) -> Seen:
    table, head = lib.nn.Embedding(6, 4), layer(lib, 4, 6)

    def step(tokens):
        logits = head(table(tokens[:, :-1]))
        return lib.nn.functional.cross_entropy(logits.reshape(-1, 6), tokens[:, 1:].reshape(-1))

    step = wrap(step)
    for n in range(4):
        yield step((lib.arange(10).reshape(2, 5) * (n + 1)) % 6)


@case
def ctc(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 4)

    def step(x, targets, lengths):
        logp = lib.log_softmax(model(x), -1).unsqueeze(1).expand(-1, 2, -1)
        inputs = lib.full((2,), x.shape[0], dtype=lib.int64)
        return lib.nn.functional.ctc_loss(logp, targets, inputs, lengths)

    step = wrap(step)
    for n in range(4):
        targets = lib.tensor([[1, 2], [3, 1]])
        yield step(batch(lib, n, 6), targets, lib.tensor([2, 1 + n % 2]))


@case
def ctc_in_training(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 4)

    def step(x):
        model.zero_grad()
        logp = lib.log_softmax(model(x), -1).unsqueeze(1)
        loss = lib.nn.functional.ctc_loss(logp, lib.tensor([[1, 2]]), (6,), (2,))
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n, 6)), weights(model)


@case
def embedding_bag(lib: Any, wrap: Any) -> Seen:
    bag = lib.nn.EmbeddingBag(6, 3, mode="mean")
    step = wrap(lambda tokens, offsets: bag(tokens, offsets).sum(0))
    for n in range(4):
        yield step(lib.arange(5) % (n + 1), lib.tensor([0, 1 + n % 3]))


@case
def embedding_bag_in_training(lib: Any, wrap: Any) -> Seen:
    bag = lib.nn.EmbeddingBag(6, 3, mode="sum")
    optimizer = lib.optim.SGD(bag.parameters(), lr=0.1)

    def step(tokens):
        optimizer.zero_grad()
        loss = bag(tokens).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step((lib.arange(6) * (n + 1) % 6).reshape(2, 3)), bag.weight


@case
def packed_sequences(lib: Any, wrap: Any) -> Seen:
    lstm = lib.nn.LSTM(3, 4, batch_first=True)
    rnn = lib.nn.utils.rnn

    def step(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        return out.sum(1)

    step = wrap(step)
    for lengths in ([4, 2], [1, 4], [4, 2], [4, 4]):
        x = batch(lib, 1, 8).reshape(2, 4, 3)
        yield step(x, lib.tensor(lengths))


@case
def padded_sequences(lib: Any, wrap: Any) -> Seen:
    rnn = lib.nn.utils.rnn
    step = wrap(lambda parts: rnn.pad_sequence(parts, batch_first=True).sum(0))
    for n in range(4):
        yield step([ramp(lib, 2 + n % 2), ramp(lib, 3), ramp(lib, 1)])


@case
def masked_scatter(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, source: x.masked_scatter(x > 0, source) * 2)
    for n in range(4):
        yield step(ramp(lib, 6, start=-0.1 * n), ramp(lib, 6, start=5.0))


@case
def masked_scatter_in_place(lib: Any, wrap: Any) -> Seen:
    def step(x, mask):
        x.masked_scatter_(mask, lib.arange(6.0))
        return x.sum()

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 6)
        yield step(x, lib.arange(6) % (n + 1) == 0), x


@case
def assignment_by_a_mask(lib: Any, wrap: Any) -> Seen:
    def step(y, t):
        y[y > 0] = t
        return y * 2

    step = wrap(step)
    for n in range(4):
        y = ramp(lib, 6, start=-0.1 * n)
        yield step(y, float(n)), y


@case
def assignment_of_a_tensor_by_a_mask(lib: Any, wrap: Any) -> Seen:
    def step(y, mask, t):
        y = y.clone()
        y[mask] = t[: int(mask.sum())]
        return y

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 6), lib.arange(6) % (n + 1) == 0, lib.arange(6.0))


@case
def assignment_by_a_mask_with_gradients(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        w.grad = None
        y = w * x
        y[x < 0] = 0.0
        y.sum().backward()

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=-0.1 * n))
        yield w.grad


@case
def bincount(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.bincount(x, minlength=3))
    for n in range(5):
        yield step(lib.arange(5) % (n + 1) + n % 2)


@case
def bincount_with_weights(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, w: lib.bincount(x, weights=w))
    for n in range(4):
        yield step(lib.arange(5) % (n + 1), ramp(lib, 5))


@case
def repeat_interleave(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, counts: lib.repeat_interleave(x, counts, dim=0))
    for counts in ([1, 2, 0], [2, 2, 2], [1, 2, 0], [0, 0, 1]):
        yield step(ramp(lib, 3, 2), lib.tensor(counts))


@case
def repeat_interleave_by_a_number(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x.repeat_interleave(k, 0))
    for k in (1, 2, 3, 2):
        yield step(ramp(lib, 3), k)


@case
def one_hot(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda y: lib.nn.functional.one_hot(y) * 2)
    for n in range(4):
        yield step(lib.arange(3) + n % 2)


@case
def a_normal_distribution(lib: Any, wrap: Any) -> Seen:
    D = lib.distributions

    def step(mean, scale, x):
        return D.Normal(mean, scale).log_prob(x).sum()

    step = wrap(step)
    for n in range(5):
        scale = lib.full((3,), -1.0 if n == 2 else 1.0 + n)
        yield attempt(step, ramp(lib, 3), scale, ramp(lib, 3, start=float(n)))


@case
def a_variational_autoencoder(lib: Any, wrap: Any) -> Seen:
    encoder, decoder = layer(lib, 3, 4), layer(lib, 2, 3)
    D = lib.distributions
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = lib.optim.Adam(parameters, lr=0.01)

    def step(x):
        optimizer.zero_grad()
        mean, log_scale = encoder(x).chunk(2, -1)
        q = D.Normal(mean, log_scale.exp())
        z = q.rsample()
        kl = D.kl_divergence(q, D.Normal(lib.zeros(2), lib.ones(2))).sum(-1).mean()
        loss = (decoder(z) - x).square().sum(-1).mean() + kl
        loss.backward()
        optimizer.step()
        return loss.detach(), kl.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), parameters


@case
def proximal_policy_optimization(lib: Any, wrap: Any) -> Seen:
    policy, value = mlp(lib), layer(lib, 3, 1)
    D = lib.distributions
    parameters = [*policy.parameters(), *value.parameters()]
    optimizer = lib.optim.Adam(parameters, lr=0.01)
    clip = 0.2

    def step(states, actions, old, returns):
        dist = D.Categorical(logits=policy(states))
        ratio = (dist.log_prob(actions) - old).exp()
        baseline = value(states).squeeze(-1)
        advantage = (returns - baseline).detach()
        clipped = ratio.clamp(1 - clip, 1 + clip) * advantage
        loss = -lib.min(ratio * advantage, clipped).mean()
        loss = loss + (returns - baseline).square().mean() - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        return loss.item()

    step = wrap(step)
    for n in range(4):
        clip = 0.2 / (n + 1)
        actions, old = lib.arange(4) % 2, lib.full((4,), -0.7)
        yield step(batch(lib, n), actions, old, ramp(lib, 4, start=float(n)))
        yield parameters


@case
def an_action_sampled(lib: Any, wrap: Any) -> Seen:
    policy, D = layer(lib), lib.distributions

    def step(x):
        dist = D.Categorical(logits=policy(x))
        action = dist.sample()
        return action, dist.log_prob(action)

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n))


@case
def validation_of_a_categorical(lib: Any, wrap: Any) -> Seen:
    D = lib.distributions
    step = wrap(lambda p, a: D.Categorical(probs=p).log_prob(a))
    for n in range(4):
        p = lib.tensor([0.5, 0.5, -0.1 if n == 2 else 0.2])
        found = attempt(step, p, lib.tensor(n % 3))
        yield found


@case
def bernoulli_and_beta(lib: Any, wrap: Any) -> Seen:
    D = lib.distributions

    def step(a, x):
        beta = D.Beta(a, a + 1)
        return D.Bernoulli(probs=beta.mean).log_prob(x).sum(), beta.log_prob(lib.tensor(0.3))

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((2,), 1.0 + n), lib.tensor([0.0, 1.0]))


@case
def targets_of_another_kind(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    F = lib.nn.functional

    def step(x, y, kind):
        out = model(x)
        if kind == "bce":
            return F.binary_cross_entropy_with_logits(out, y)
        if kind == "nll":
            return F.nll_loss(F.log_softmax(out, -1), y[:, 0].long())
        return getattr(F, kind)(out, y)

    step = wrap(step)
    y = (ramp(lib, 4, 2) > 0).float()
    for kind in ("bce", "nll", "mse_loss", "smooth_l1_loss", "l1_loss", "bce"):
        yield step(batch(lib, 1), y, kind)


@case
def contrastive_pairs(lib: Any, wrap: Any) -> Seen:
    model = layer(lib, 3, 2)
    scale = lib.nn.Parameter(lib.tensor(math.log(1 / 0.07)))

    def step(a, b):
        a = lib.nn.functional.normalize(model(a), dim=-1)
        b = lib.nn.functional.normalize(model(b), dim=-1)
        logits = scale.exp() * a @ b.t()
        labels = lib.arange(len(logits))
        both = lib.nn.functional.cross_entropy
        loss = (both(logits, labels) + both(logits.t(), labels)) / 2
        loss.backward()
        with lib.no_grad():
            scale.clamp_(0, math.log(5.0))
        return loss.detach()

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n), batch(lib, n + 5)), scale
