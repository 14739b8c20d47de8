"""ONNX Runtime: the Attention operator of opset 23."""

import onnx
import onnxruntime
from onnx import TensorProto, helper

from measure import Contender
from ours import in_turn

QUADRATIC_BYTES = 6 << 30  # it stores all scores: where they exceed this, it sits out


class OnnxRuntime:
    name = "ONNX Runtime"
    version = onnxruntime.__version__

    def session(self, case):
        shapes = {"Q": (case.B, case.H, case.query_length, case.D),
                  "K": (case.B, case.key_heads, case.L, case.D),
                  "V": (case.B, case.key_heads, case.L, case.D)}
        node = helper.make_node("Attention", list(shapes), ["Y"],
                                is_causal=int(case.causal))
        graph = helper.make_graph(
            [node], "attention",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
             for name, shape in shapes.items()],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, shapes["Q"])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)],
                                  ir_version=10)
        onnx.checker.check_model(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = case.threads
        return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                            ["CPUExecutionProvider"])

    def contenders(self, case, inputs):
        scores = 4 * case.B * case.H * case.query_length * case.L
        if case.gradients or case.part == "additive" or case.dtype != "fp32" or scores > QUADRATIC_BYTES:
            return
        session = self.session(case)
        bindings = []
        for key, value in zip(inputs.key, inputs.value):
            binding = session.io_binding()
            for name, x in zip("QKV", (inputs.query[0], key, value)):
                binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
            binding.bind_output("Y", "cpu")
            bindings.append(binding)
        run = in_turn([lambda b=b: session.run_with_iobinding(b) for b in bindings])
        yield Contender(self.name, run, lambda: bindings[0].copy_outputs_to_cpu(),
                        "Attention, opset 23")
