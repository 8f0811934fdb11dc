// What an ISA file offers of matmul_tile.inl, by packed type. Included after it, in the same namespace.
using enum FileType;
constexpr ComputeIsa compute_int8 = {
    prepare_int8, int8_chunk,
    {{}, {}, {}, int8_fns<q4_0>, int8_fns<q4_1>, int8_fns<q5_0>, int8_fns<q5_1>, int8_fns<q8_0>,
     int8_fns<q2_k>, int8_fns<q3_k>, int8_fns<q4_k>, int8_fns<q5_k>, int8_fns<q6_k>, int8_fns<iq4_nl>,
     {}, int8_fns<w4>, int8_fns<w4z>, int8_fns<w8>, int8_fns<w8z>}};
constexpr ComputeIsa compute_a8 = {
    prepare_a8, int8_chunk,
    {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
     a8_fns<w4>, a8_fns<w4z>, a8_fns<w8>, a8_fns<w8z>}};
template <bool Round>  // activations to bf16
constexpr ComputeIsa compute_floats = {
    prepare_floats<Round>, fp32_chunk,
    {fp32_fns<f32>, fp32_fns<f16>, fp32_fns<bf16>, fp32_fns<q4_0>, fp32_fns<q4_1>, fp32_fns<q5_0>,
     fp32_fns<q5_1>, fp32_fns<q8_0>, fp32_fns<q2_k>, fp32_fns<q3_k>, fp32_fns<q4_k>, fp32_fns<q5_k>,
     fp32_fns<q6_k>, fp32_fns<iq4_nl>, fp32_fns<f8>, fp32_fns<w4>, fp32_fns<w4z>, fp32_fns<w8>,
     fp32_fns<w8z>}};
