"""Errors of everybody's results against double precision: the largest of any element, over
the largest element of the exact result."""

import numpy
import torch
import torch.nn.functional as F

from cases import Case, make_inputs

RESULTS = ("output", "gradient of query", "gradient of key", "gradient of value")


def exact(case, inputs):
    """Output and gradients in float64."""
    given = [torch.from_numpy(x[0]).double().requires_grad_()
             for x in (inputs.query, inputs.key, inputs.value)]
    output = F.scaled_dot_product_attention(*given, is_causal=case.causal)
    gradient = torch.from_numpy(inputs.output_gradient).double()
    return [x.detach().numpy()
            for x in (output, *torch.autograd.grad(output, given, gradient))]


def errors(contender, expected):
    contender.run()
    return [float(numpy.abs(got - true).max() / numpy.abs(true).max())
            for got, true in zip(contender.results(), expected)]


def measure(engines, say):
    """Rows of {"result", "L", "D", "causal", "errors": {name: error}}."""
    rows = []
    for L, D, causal in ((512, 64, False), (512, 64, True), (2048, 128, False),
                         (2048, 128, True)):
        forward = Case("forward", 1, L, D, causal, H=2)
        backward = Case("backward", 1, L, D, causal, H=2, gradients="backward")
        inputs = make_inputs(backward)
        true = exact(backward, inputs)
        found = [dict() for _ in RESULTS]
        for engine in engines:
            for contender in engine.contenders(forward, inputs):
                name = contender.peer
                error, = errors(contender, true[:1])
                if contender.variant.endswith("fp16"):
                    continue  # keys and values were rounded before
                found[0][name] = error
            for contender in engine.contenders(backward, inputs):
                for column, error in zip(found[1:], errors(contender, true[1:])):
                    column[contender.peer] = error
        rows += [{"result": name, "L": L, "D": D, "causal": causal, "errors": column}
                 for name, column in zip(RESULTS, found)]
        say(f"  L {L}, D {D}, {'causal' if causal else 'full'}: " + ", ".join(
            f"{name} {max(c.get(name, 0) for c in found):.1e}" for name in found[0]))
    return rows
