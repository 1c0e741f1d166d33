"""Constrained optimization by Cooper."""

import json

import cooper
import torch

torch.manual_seed(0)


class Problem(cooper.ConstrainedMinimizationProblem):
    def __init__(self):
        super().__init__()
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
        self.limit = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )

    def compute_cmp_state(self, x):
        state = cooper.ConstraintState(violation=1 - x.sum().reshape(1))
        return cooper.CMPState(loss=x.pow(2).sum(), observed_constraints={self.limit: state})


x = torch.nn.Parameter(torch.rand(3))
problem = Problem()
primal = torch.optim.SGD([x], lr=0.1)
dual = torch.optim.SGD(problem.dual_parameters(), lr=0.1, maximize=True)
optimizer = cooper.optim.SimultaneousOptimizer(
    cmp=problem, primal_optimizers=primal, dual_optimizers=dual
)
found = []
for _ in range(6):
    out = optimizer.roll(compute_cmp_state_kwargs={"x": x})
    found.append(float(out.loss))
found += x.tolist()
print(json.dumps(found))
