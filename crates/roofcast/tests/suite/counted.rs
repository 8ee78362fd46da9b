//! Parameters of the catalog's models against a count by other code: Hugging Face transformers 5.23 builds the modules of
//! each entry's keys without weights, and their elements are added up. Second column: learned parameters; third: the
//! buffers that a checkpoint stores beside them, the routers' correction biases.

use crate::support::model;

#[rustfmt::skip]
const COUNTED: [(&str, u64, u64); 66] = [
    ("ai21labs/Jamba-v0.1", 51_570_323_328, 0),
    ("baidu/ERNIE-4.5-0.3B-PT", 360_748_032, 0),
    ("baidu/ERNIE-4.5-21B-A3B-PT", 21_825_437_888, 0),
    ("bigcode/starcoder2-3b", 3_030_371_328, 0),
    ("BSC-LT/salamandra-2b", 2_253_490_176, 0),
    ("BSC-LT/salamandra-7b", 7_768_117_248, 0),
    ("CohereLabs/c4ai-command-a-03-2025", 111_057_580_032, 0),
    ("CohereLabs/c4ai-command-r-08-2024", 32_296_476_672, 0),
    ("CohereLabs/c4ai-command-r7b-12-2024", 8_028_033_024, 0),
    ("deepseek-ai/deepseek-coder-33b-base", 33_342_991_360, 0),
    ("EleutherAI/pythia-1.4b", 1_414_647_808, 0),
    ("EleutherAI/pythia-160m", 162_322_944, 0),
    ("EleutherAI/pythia-410m", 405_334_016, 0),
    ("EleutherAI/pythia-70m", 70_426_624, 0),
    ("google/gemma-3n-E4B-it", 6_835_235_568, 0),
    ("google/gemma-4-12B-it", 11_907_350_272, 0),
    ("google/gemma-4-E2B-it", 4_628_569_344, 0),
    ("google/gemma-4-E4B-it", 7_463_013_376, 0),
    ("HuggingFaceTB/SmolLM2-135M", 134_515_008, 0),
    ("HuggingFaceTB/SmolLM2-360M", 361_821_120, 0),
    ("ibm-granite/granite-4.0-h-1b", 1_461_538_368, 0),
    ("ibm-granite/granite-4.0-h-350m", 340_332_224, 0),
    ("ibm-granite/granite-4.0-h-micro", 3_191_396_096, 0),
    ("ibm-granite/granite-4.0-h-small", 32_207_337_984, 0),
    ("ibm-granite/granite-4.0-h-tiny", 6_939_037_248, 0),
    ("LGAI-EXAONE/EXAONE-4.0-1.2B", 1_279_391_488, 0),
    ("LGAI-EXAONE/EXAONE-4.0-32B", 32_003_216_384, 0),
    ("LiquidAI/LFM2-2.6B", 2_569_272_320, 0),
    ("LiquidAI/LFM2-8B-A1B", 8_339_929_856, 704),
    ("LiquidAI/LFM2.5-8B-A1B", 8_467_856_128, 704),
    ("meta-models/Muse-Glimmer-30B", 27_854_780_928, 0),
    ("microsoft/phi-1_5", 1_418_270_720, 0),
    ("microsoft/phi-2", 2_779_683_840, 0),
    ("microsoft/Phi-4-mini-instruct", 3_836_021_760, 0),
    ("mistralai/Ministral-3-14B-Instruct-2512", 13_506_073_600, 0),
    ("mistralai/Ministral-3-8B-Instruct-2512", 8_489_553_920, 0),
    ("mistralai/Mistral-Small-4-119B-2603", 118_972_826_624, 0),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49_122_675_072, 6_656),
    ("nvidia/Llama-3.1-Nemotron-Nano-4B-v1.1", 4_512_746_496, 0),
    ("nvidia/Nemotron-H-8B-Base-8K", 8_100_852_736, 0),
    ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", 3_973_556_832, 0),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120_668_687_360, 20_480),
    ("nvidia/NVIDIA-Nemotron-Nano-12B-v2", 12_310_001_152, 0),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8_888_227_328, 0),
    ("openlm-research/open_llama_3b", 3_426_473_600, 0),
    ("Qwen/Qwen3.5-122B-A10B", 122_111_526_912, 0),
    ("Qwen/Qwen3.8-2.4T-A95B", 2_419_804_697_984, 0),
    ("stabilityai/stable-code-3b", 2_795_443_200, 0),
    ("tencent/Hunyuan-1.8B-Instruct", 1_791_080_448, 0),
    ("tencent/Hunyuan-4B-Instruct", 4_221_757_440, 0),
    ("tencent/Hunyuan-7B-Instruct", 7_504_568_320, 0),
    ("tencent/Hunyuan-A13B-Instruct", 80_393_183_232, 0),
    ("tencent/Hy3", 295_033_528_320, 15_168),
    ("tiiuae/Falcon-H1-0.5B-Instruct", 521_411_104, 0),
    ("tiiuae/Falcon-H1-1.5B-Deep-Instruct", 1_554_773_392, 0),
    ("tiiuae/Falcon-H1-1.5B-Instruct", 1_554_789_760, 0),
    ("tiiuae/Falcon-H1-34B-Instruct", 33_642_221_312, 0),
    ("tiiuae/Falcon-H1-3B-Instruct", 3_149_256_192, 0),
    ("tiiuae/Falcon-H1-7B-Instruct", 7_585_513_568, 0),
    ("tiiuae/Falcon3-10B-Instruct", 10_305_653_760, 0),
    ("tiiuae/Falcon3-1B-Instruct", 1_669_408_768, 0),
    ("tiiuae/Falcon3-3B-Instruct", 3_227_655_168, 0),
    ("tiiuae/Falcon3-7B-Instruct", 7_455_550_464, 0),
    ("zai-org/GLM-4-32B-0414", 32_566_081_536, 0),
    ("zai-org/GLM-4.7-Flash", 29_943_390_976, 2_944),
    ("zai-org/GLM-5.2", 743_377_000_704, 19_200),
];

#[test]
fn totals_equal_those_of_transformers_modules() {
    for (name, parameters, buffers) in COUNTED {
        let total = model(name).parameters().total;
        assert_eq!(total, parameters + buffers, "{name}");
    }
}
