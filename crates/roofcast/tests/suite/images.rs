//! Images in prompts: their tokens, the time of their encoder at the limit, and the steps that wait for it.

use super::fleets::holds;
use super::support::{catalog, model};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::limits::{ImageCost, image};
use roofcast::model::ImageSize;
use roofcast::simulate::{RunOptions, Simulation, simulate};
use roofcast::spec::{FleetSpec, Spec};
use roofcast::units::Bytes;
use roofcast::{Error, Forecaster};
use std::sync::Arc;

const QWEN: &str = "Qwen/Qwen3-VL-2B-Instruct";

fn deployment(name: &str, text: &str) -> Result<(Deployment, Spec), Error> {
    let spec = Spec::parse("test", text)?;
    let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    Ok((Deployment::resolve(model(name), chip, &DeploymentOptions::of(&spec))?, spec))
}

fn run(name: &str, text: &str) -> Result<Simulation, Error> {
    let (deployment, spec) = deployment(name, text)?;
    let options = RunOptions { leap: true, records: true, ..RunOptions::default() };
    simulate(&Forecaster::serving(deployment)?, &spec, "test", options)
}

fn cost(text: &str, size: ImageSize) -> ImageCost {
    image(&Forecaster::embedded(deployment(QWEN, text).unwrap().0).unwrap(), size).unwrap()
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
}

/// Qwen3-VL-2B: 24 layers of width 1024 with 4 · 1024² + 2 · 1024 · 4096 weights, patches of 3 · 16 · 16 · 2 values,
/// four mergers of 4096² + 4096 · 2048 weights for each token of four patches. An image of 1024 × 1024 has 1024 tokens
/// of 4096 patches. Every patch attends to every other with 16 heads of 64, in 4 · 64 · 16 FLOPs a pair, counted as the
/// 4096 · 6144 − 4096 · 4095/2 pairs of a prompt at the end of 6144 tokens. An H100 has 989.4 TFLOP/s; norms are
/// read at 3.35 TB/s.
#[test]
fn an_encoder_by_hand() {
    let found = cost("", ImageSize::Pixels(1024, 1024));
    assert_eq!((found.tokens, found.patches), (1024, 4096));
    let layers = 24.0 * (4.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 4096.0);
    let (patches, merging) = (1536.0 * 1024.0, 4.0 * (4096.0 * 4096.0 + 4096.0 * 2048.0));
    let products = 2.0 * 4096.0 * (layers + patches + merging / 4.0);
    let pairs = 4096.0 * 6144.0 - 4096.0 * 4095.0 / 2.0;
    let attention = 24.0 * 4.0 * 64.0 * 16.0 * pairs;
    let norms = 24.0 * 2.0 * 1024.0 * 2.0 / 3.35e12;
    close(found.limit.seconds(), (products + attention) / 989.4e12 + norms);
    assert!(found.forecast > found.limit);
    // The tower's weights in 16 bits, and 1024 tokens of the text model's width of 2048.
    assert_eq!(found.weight_bytes, Bytes((2.0 * (layers + patches + merging)) as u64));
    assert_eq!(found.cache_bytes, Bytes(1024 * 2048 * 2));
    // On two ranks the weights are halved, or images are whole.
    let half = "[parallelism]\ntp = 2\n";
    let whole = format!("{half}[engine]\nmm_encoder_tp_mode = \"data\"\n");
    let size = ImageSize::Tokens(1024);
    assert_eq!(cost(half, size).weight_bytes.0, found.weight_bytes.0 / 2);
    assert_eq!(
        (cost(&whole, size).weight_bytes, cost(&whole, size).limit),
        (found.weight_bytes, found.limit)
    );
}

/// A video is one pass of the tower, which reads its weights once. Of 32 frames of 1280 × 720 Qwen3-VL-2B has 16 pairs of
/// 2880 patches, which attend within their pair. Whole videos on two ranks: one rank encodes all pairs of a video.
#[test]
fn a_video_is_one_pass() {
    let size = ImageSize::Frames(1280, 720, 32);
    let video = cost("", size);
    assert_eq!((video.tokens, video.patches, video.frame_pairs), (16 * 720, 16 * 2880, 16));
    let layers = 24.0 * (4.0 * 1024.0 * 1024.0 + 2.0 * 1024.0 * 4096.0);
    let (patches, merging) = (1536.0 * 1024.0, 4.0 * (4096.0 * 4096.0 + 4096.0 * 2048.0));
    let products = 2.0 * 16.0 * 2880.0 * (layers + patches + merging / 4.0);
    let pairs = 16.0 * (2880.0 * 4320.0 - 2880.0 * 2879.0 / 2.0);
    let attention = 24.0 * 4.0 * 64.0 * 16.0 * pairs;
    let norms = 24.0 * 2.0 * 1024.0 * 2.0 / 3.35e12;
    close(video.limit.seconds(), (products + attention) / 989.4e12 + norms);
    let whole =
        "[parallelism]\ntp = 2\n[engine]\nmm_encoder_tp_mode = \"data\"\nmax_num_batched_tokens = 16384\n";
    assert_eq!(cost(whole, size).limit, video.limit);
    let load =
        "[workload]\nrequests = 1\ninput_len = 100\noutput_len = 3\narrivals = { kind = \"offline\" }\n";
    let images = "images = { count = 2, width = 1280, height = 720, frames = 32 }\n";
    let used = run(QWEN, &format!("{whole}cost = \"limit\"\n{load}{images}")).unwrap();
    let of = used.images.unwrap();
    assert_eq!((of.count, of.tokens, used.records[0].input_len), (2, 16 * 720, 100 + 2 * 16 * 720));
    close(of.encoder_ms, video.limit.ms());
}

/// The encoder's time for as many patches does not grow with the number of frames: its launches are those of one pass. Fewer
/// frames than a pair are refused where the processor refuses them.
#[test]
fn more_frames_of_fewer_patches_take_no_longer() {
    let [few, many] = [32, 768].map(|frames| cost("", ImageSize::Frames(1280, 720, frames)));
    assert!(many.patches < few.patches && many.forecast < few.forecast);
    let deployment = deployment(QWEN, "").unwrap().0;
    let told = deployment.image_tokens(ImageSize::Frames(1280, 720, 1)).unwrap_err().to_string();
    assert!(told.contains("at least 2 frames"), "{told}");
}

/// Qwen3-VL by a user's bound of 1,003,520 pixels, 980 tokens of 32 × 32: 4000 × 3000 is shrunk by √(12,000,000 /
/// 1,003,520) = 3.458 to 36 · 27 tokens, without the bound 125 · 94. A bound that is no number, and a model without a
/// tower, are refused; a key of videos is named.
#[test]
fn a_user_bounds_images() {
    let bound = |text: &str| format!("[engine.vllm]\nmm_processor_kwargs = '{text}'\n");
    let size = ImageSize::Pixels(4000, 3000);
    assert_eq!(cost("", size).tokens, 125 * 94);
    assert_eq!(cost(&bound(r#"{"max_pixels": 1003520}"#), size).tokens, 36 * 27);
    let told = deployment(QWEN, &bound(r#"{"max_pixels": "many"}"#)).unwrap_err().to_string();
    assert!(told.contains("mm_processor_kwargs: `max_pixels`"), "{told}");
    let told = deployment("meta-llama/Llama-3.1-8B-Instruct", &bound("{}")).unwrap_err().to_string();
    assert!(told.contains("no vision tower"), "{told}");
    let (noted, _) = deployment(QWEN, &bound(r#"{"fps": 2}"#)).unwrap();
    assert!(noted.assumptions.iter().any(|text| text.contains("mm_processor_kwargs: fps")));
}

/// A request of two images and 100 tokens of text takes as long as one of 2148 tokens of text and two encoders, in
/// chunks of 500 tokens. In one step both images are one call of vLLM's encoder, which reads its norms once; its products
/// are bound by arithmetic. On two ranks that encode whole images both are encoded at once.
#[test]
fn a_prompt_waits_for_its_encoder() {
    let end = |keys: &str, load: &str| {
        let text = format!(
            "[engine]\ncost = \"limit\"\nscheduler_reserve_full_isl = false\n{keys}\n[workload]\nrequests = 1\noutput_len = 3\n\
             arrivals = {{ kind = \"offline\" }}\n{load}\n"
        );
        let run = run(QWEN, &text).unwrap();
        (run.records[0].finished.seconds(), run)
    };
    let images = "input_len = 100\nimages = { count = 2, width = 1024, height = 1024 }";
    let one = cost("", ImageSize::Tokens(1024)).limit.seconds();
    let norms = 24.0 * 2.0 * 1024.0 * 2.0 / 3.35e12;
    for (keys, shared) in
        [("max_num_batched_tokens = 8192", norms), ("max_num_batched_tokens = 500\nmax_num_seqs = 8", 0.0)]
    {
        let (with, run) = end(keys, images);
        let (text, _) = end(keys, "input_len = 2148");
        assert!((with - text - (2.0 * one - shared)).abs() < 1e-10, "{keys}: {with} {text} {one}");
        let used = run.images.unwrap();
        assert_eq!((used.count, used.tokens, used.patches), (2, 1024, 4096));
        close(used.encoder_ms, one * 1e3);
        assert_eq!((run.records[0].input_len, run.activity.scheduled_tokens), (2148, 2150));
    }
    let shared = "max_num_batched_tokens = 8192\nmm_encoder_tp_mode = \"data\"\n[parallelism]\ntp = 2";
    let (with, text) = (end(shared, images).0, end(shared, "input_len = 2148").0);
    assert!((with - text - one).abs() < 1e-10, "{with} {text} {one}");
}

/// Leaping equals stepping under several schedulers; a shared prefix stands before the images, and is found again.
#[test]
fn leaps_wait_as_steps_do() {
    for engine in ["vllm", "sglang", "tensorrt-llm"] {
        let text = format!(
            "[engine]\nname = \"{engine}\"\n[workload]\nrequests = 40\ninput_len = {{ kind = \"uniform\", min = 20, max = 400 }}\n\
             output_len = 30\nimages = {{ count = 2, tokens = 300 }}\nprefix = {{ length = 160 }}\n\
             arrivals = {{ kind = \"poisson\", rate = 20.0 }}\n"
        );
        let (deployment, spec) = deployment(QWEN, &text).unwrap();
        let run = holds(&deployment, &spec.workload.unwrap(), FleetSpec::default());
        assert!(run.records.iter().all(|r| r.input_len > 760), "{engine}");
        assert_eq!(run.images.unwrap().patches, 1200);
        assert!(engine == "tensorrt-llm" || run.activity.cached_tokens >= 38 * 160, "{engine}");
    }
}

/// Models without a tower are refused by their name, sizes in pixels where the config does not decide their tokens, and
/// images whose place in a prompt is unknown.
#[test]
fn refusals_name_model_and_key() {
    let load = "[workload]\nrequests = 2\ninput_len = 9\noutput_len = 9\n";
    let offline = format!("{load}arrivals = {{ kind = \"offline\" }}\n");
    let pixels = "images = { width = 300, height = 200 }\n";
    let llama = "meta-llama/Llama-3.1-8B-Instruct";
    for (name, text, says) in [
        (llama, format!("{offline}{pixels}"), "Llama-3.1-8B"),
        (QWEN, format!("[engine]\nlanguage_model_only = true\n{offline}{pixels}"), "language_model_only"),
        (
            QWEN,
            format!("{offline}{pixels}prefix = {{ length = 9, share = 0.5 }}\n"),
            "a prefix that all requests have",
        ),
        (QWEN, format!("{offline}images = {{ width = 300 }}\n"), "width and height, or tokens"),
        (QWEN, format!("{offline}images = {{ count = 0, tokens = 9 }}\n"), "1 to 1000"),
    ] {
        let error = run(name, &text).err().unwrap().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// A conversation of two turns has the images in its first prompt: 1024 tokens of one image, 100 of text and an answer of 11. The
/// second prompt finds them in the prefix cache, and waits for no encoder; without a prefix cache each turn encodes.
#[test]
fn a_conversation_has_its_images_once() {
    let text = |engine: &str, images: &str| {
        format!(
            "[engine]\ncost = \"limit\"\n{engine}\n[workload]\nrequests = 2\ninput_len = 100\noutput_len = 11\n\
             arrivals = {{ kind = \"sessions\", concurrency = 1, turns = 2 }}\n{images}"
        )
    };
    let images = "images = { width = 1024, height = 1024 }\n";
    let encoder = run(QWEN, &text("", images)).unwrap().images.unwrap().encoder_ms;
    for (engine, encoded) in [("", 1.0), ("enable_prefix_caching = false", 2.0)] {
        let [with, without] =
            [images, "prefix = { length = 1024 }\n"].map(|more| run(QWEN, &text(engine, more)).unwrap());
        let lengths = |run: &Simulation| run.records.iter().map(|r| r.input_len).collect::<Vec<_>>();
        assert_eq!((lengths(&with), lengths(&without)), (vec![1124, 1235], vec![1124, 1235]));
        let ends = |run: &Simulation| run.records[1].finished.ms();
        close(ends(&with) - ends(&without), encoded * encoder);
    }
}
