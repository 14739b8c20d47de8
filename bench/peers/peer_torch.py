"""PyTorch: scaled_dot_product_attention, and two products with a softmax between."""

import math

import numpy
import torch
import torch.nn.functional as F

from measure import TOLERANCE, Contender
from ours import in_turn


def tensor(x):
    made = torch.from_numpy(x)
    return made.view(torch.bfloat16) if x.dtype == numpy.uint16 else made


def arrays(tensors):
    return [x.detach().float().numpy() for x in tensors]


class Torch:
    name = "PyTorch"
    version = torch.__version__

    def contenders(self, case, inputs):
        torch.set_num_threads(case.threads)
        query, keys, values = tensor(inputs.query[0]), *(
            [tensor(x) for x in several] for several in (inputs.key, inputs.value))
        if case.part == "additive":
            yield self.additive(case, inputs, "broadcast, product", additive_by_product)
            yield self.additive(case, inputs, "broadcast, einsum", additive_by_einsum)
            return
        if case.gradients:
            yield from self.gradients(case, query, keys[0], values[0],
                                      tensor(inputs.output_gradient))
            return
        for variant, attention in self.variants(case):
            yield self.forward(case, self.name, variant, attention, query, keys, values)
        if case.dtype == "fp32" and case.key_heads == case.H:
            yield self.forward(case, "two GEMMs", "bmm, softmax, bmm",
                               plain_in_place(case), query, keys, values)

    def variants(self, case):
        """SDPA; for grouped heads also with the group as queries of one head."""
        if case.key_heads == case.H:
            yield "SDPA", lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, is_causal=case.causal)
            return
        yield "SDPA, enable_gqa", lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, enable_gqa=True)
        shape = (case.B, case.key_heads, case.H // case.key_heads, case.D)
        yield "SDPA, group as queries", lambda q, k, v: F.scaled_dot_product_attention(
            q.view(shape), k, v).view(q.shape)

    def forward(self, case, peer, variant, attention, query, keys, values):
        left = [None]

        def call(key, value):
            def run():
                with torch.inference_mode():
                    left[0] = attention(query, key, value)
            return run

        run = in_turn([call(k, v) for k, v in zip(keys, values)])
        return Contender(peer, run, lambda: arrays(left), variant,
                         TOLERANCE[case.dtype])

    def additive(self, case, inputs, variant, attention):
        given = [tensor(x).clone().requires_grad_(bool(case.gradients)) for x in (
            inputs.query[0], inputs.key[0], inputs.value[0], inputs.additive)]
        output_gradient = case.gradients and tensor(inputs.output_gradient)
        kept = attention(*given) if case.gradients == "backward" else None
        left = [None]

        def forward():
            with torch.inference_mode():
                left[0] = [attention(*given)]

        def gradients():
            output = attention(*given) if kept is None else kept
            left[0] = torch.autograd.grad(output, given, output_gradient,
                                          retain_graph=kept is not None)

        return Contender(self.name, gradients if case.gradients else forward,
                         lambda: arrays(left[0]), variant, 2e-3)

    def gradients(self, case, query, key, value, output_gradient):
        variants = [(self.name, *next(self.variants(case)))]
        if case.part == "short":
            variants.append(("two GEMMs", "bmm, softmax, bmm", plain_attention(case)))
        for peer, variant, attention in variants:
            inputs = [x.detach().clone().requires_grad_() for x in (query, key, value)]
            left = [None]
            output = attention(*inputs)

            def run(attention=attention, inputs=inputs, left=left, output=output):
                again = attention(*inputs) if case.gradients == "both" else output
                left[0] = torch.autograd.grad(again, inputs, output_gradient,
                                              retain_graph=case.gradients == "backward")

            yield Contender(peer, run, lambda left=left: arrays(left[0]), variant)


def additive_by_product(query, key, value, vector):
    """The faster one backward, of five ways tried."""
    terms = torch.tanh(query[:, :, :, None] + key[:, :, None])
    return torch.softmax((terms @ vector[:, None, :, None])[..., 0], -1) @ value


def additive_by_einsum(query, key, value, vector):
    """The faster one forward."""
    terms = (query[:, :, :, None] + key[:, :, None]).tanh_()
    return torch.softmax(torch.einsum("bhqkd,hd->bhqk", terms, vector), -1) @ value


def hidden_above(case):
    return torch.full((case.L, case.L), -math.inf).triu(1) if case.causal else None


def plain_attention(case):
    """The scale is folded into the query, the cheapest place for it."""
    hidden = hidden_above(case)

    def attention(query, key, value):
        rows = case.B * case.H
        q, k, v = (x.reshape(rows, -1, case.D) for x in (query, key, value))
        scores = torch.bmm(q * case.D ** -0.5, k.transpose(1, 2))
        if hidden is not None:
            scores = scores + hidden
        return torch.bmm(torch.softmax(scores, -1), v).view(query.shape)

    return attention


def plain_in_place(case):
    """The same in memory that is there already: half the time at 2,048 positions."""
    rows, scale = case.B * case.H, case.D ** -0.5
    scores = torch.empty(rows, case.L, case.L)
    hidden = hidden_above(case) if case.causal else torch.zeros(1)
    output = torch.empty(rows, case.L, case.D)

    def attention(query, key, value):
        q, k, v = (x.view(rows, -1, case.D) for x in (query, key, value))
        torch.baddbmm(hidden, q, k.transpose(1, 2), beta=float(case.causal), alpha=scale,
                      out=scores)
        torch.softmax(scores, -1, out=scores)
        return torch.bmm(scores, v, out=output).view(query.shape)

    return attention
