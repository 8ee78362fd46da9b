use super::*;
use crate::kv_cache::names::Names;
use crate::kv_cache::paged::Pool;
use crate::kv_cache::prefix::Tokens;
use crate::kv_cache::spans::Spans;
use proptest::prelude::*;

const BLOCK: u64 = 4;

/// Request that is held in both pools: by extents, and block by block.
#[derive(Default)]
struct Twin {
    number: u64,
    runs: Vec<Run>,
    /// Position from which on tokens are unique to the request.
    own_from: u64,
    length: u64,
    path: Path,
    blocks: Spans,
    former: Spans,
    contents: Spans,
    named: Cursor,
    running: bool,
}

impl Twin {
    fn new(number: u64, segments: &[(u32, u64)], own: bool) -> Twin {
        let mut tokens = Tokens::default();
        segments.iter().for_each(|&(segment, length)| tokens.push(Run { segment, start: 0, length }));
        let runs = tokens.runs().to_vec();
        let shared: u64 = runs.iter().map(|run| run.length).sum();
        let length = shared + if own { 3 * BLOCK + 1 } else { 0 };
        Twin { number, runs, own_from: shared, length, ..Twin::default() }
    }

    /// Contents of the first `count` blocks, as the block-by-block pool identifies them.
    fn contents(&mut self, count: u64, names: &mut Names) -> Spans {
        let shared = count.min(self.own_from / BLOCK) as usize;
        names.extend((0, &mut self.contents), &self.runs, &mut self.named, shared);
        names.extend_own((0, &mut self.contents), self.number, count as usize);
        self.contents.slice(0..count as usize)
    }

    /// Admits the request with all of its blocks, if they fit; true if both pools find equally many cached blocks.
    fn admit(&mut self, extents: &mut Extents, pool: &mut Pool, names: &mut Names) -> bool {
        let full = (self.length - 1) / BLOCK;
        let shared = full.min(self.own_from / BLOCK);
        let mut prefix = Path::default();
        extents.find(&self.runs, shared, &mut prefix);
        if prefix.blocks == shared {
            extents.find_own(&self.path, self.number, full - shared, &mut prefix);
        }
        let former = std::mem::take(&mut self.former);
        let contents = self.contents(full, names);
        let contents = contents.ranges().flatten().enumerate();
        let mut hits = Spans::default();
        contents
            .map_while(|(index, content)| pool.find(content, former.get(index)))
            .for_each(|block| hits.push(block..block + 1));
        let agree = prefix.blocks == hits.len() as u64 && extents.unheld(&prefix) == pool.unheld(&hits);
        let new = self.length.div_ceil(BLOCK) - prefix.blocks;
        if !agree || new + extents.unheld(&prefix) > extents.free() {
            self.former = former;
            return agree;
        }
        extents.hold(&mut prefix);
        extents.take(new);
        let full = self.length / BLOCK;
        extents.name(&mut prefix, &self.runs, full.min(self.own_from / BLOCK));
        extents.name_own(&mut prefix, self.number, full);
        self.path = prefix;
        pool.hold(&hits);
        let known = hits.len();
        self.blocks = hits;
        pool.allocate(new, &mut self.blocks);
        let contents = self.contents(full, names);
        for index in known..contents.len() {
            let [block, content] = [&self.blocks, &contents].map(|list| list.get(index).unwrap());
            pool.cache(block..block + 1, content..content + 1);
        }
        self.running = true;
        true
    }

    fn leave(&mut self, extents: &mut Extents, pool: &mut Pool) {
        extents.release(&mut self.path, self.blocks.len() as u64 - self.length / BLOCK);
        pool.release(&self.blocks);
        self.former = std::mem::take(&mut self.blocks);
        self.running = false;
    }
}

/// Shared segments of a prompt with their lengths, and true if unique tokens follow.
type Segments = (Vec<(u32, u64)>, bool);

fn prompts() -> impl Strategy<Value = Vec<Segments>> {
    let segments = prop::collection::vec((0..3_u32, 1..20_u64), 1..4);
    prop::collection::vec((segments, any::<bool>()), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 2000 } else { 20_000 }))]

    /// Requests arrive and leave in any order, some repeatedly after a preemption: counts of cached, free and shared
    /// blocks agree.
    #[test]
    fn extents_are_blocks(prompts in prompts(), moves in prop::collection::vec((0..8_usize, 0..3_u64), 1..60), room in 8..40_u32) {
        let mut extents = Extents::new(u64::from(room), BLOCK);
        let mut pool = Pool::new(room);
        let mut names = Names::new((BLOCK, 0), 1);
        let build = |(number, (segments, own)): (usize, &Segments)| Twin::new(number as u64, segments, *own);
        let mut twins: Vec<Twin> = prompts.iter().enumerate().map(build).collect();
        for (index, decoded) in moves {
            let count = twins.len();
            let twin = &mut twins[index % count];
            if twin.running {
                twin.leave(&mut extents, &mut pool);
            } else {
                prop_assert!(twin.admit(&mut extents, &mut pool, &mut names), "found differs");
            }
            // Decodes of other requests allocate blocks and free them without content.
            let taken = decoded.min(extents.free());
            extents.take(taken);
            extents.blank += taken;
            let mut blocks = Spans::default();
            pool.allocate(taken, &mut blocks);
            pool.release(&blocks);
            prop_assert_eq!((extents.free(), extents.repeated()), (pool.free(), pool.repeated()));
        }
    }
}

/// A pool of five blocks and two prompts of two blocks with a common first block: the second prompt hits that block,
/// so three blocks are held. Both prompts leave, the first one first. Afterwards five blocks are allocated in this
/// order: two blank ones, the second block of the first prompt, the second block of the second prompt, and the common
/// block.
#[test]
fn a_prompt_is_evicted_from_its_end() {
    let run = |segment, length| Run { segment, start: 0, length };
    for (taken, expected) in [(3, 2), (4, 1), (5, 0)] {
        let mut pool = Extents::new(5, BLOCK);
        let prompts = [[run(0, 4), run(1, 4)], [run(0, 4), run(2, 4)]];
        let mut paths = [Path::default(), Path::default()];
        for (path, runs) in paths.iter_mut().zip(&prompts) {
            pool.find(runs, 1, path);
            pool.hold(path);
            pool.take(2 - path.blocks);
            pool.name(path, runs, 2);
        }
        assert_eq!((pool.free(), pool.repeated()), (2, 1));
        paths.iter_mut().for_each(|path| pool.release(path, 0));
        pool.take(taken);
        let mut prefix = Path::default();
        pool.find(&prompts[1], 2, &mut prefix);
        assert_eq!(prefix.blocks, expected, "{taken} taken");
    }
}
