//! The gain of batching: announces on millions of random torrents, one at a time and 64 at a time.

use shoal_base::{Action, InfoHash, PeerV4};

use crate::data::{self, Random};
use crate::report::{Case, Figure};

const ROUNDS: usize = 7;

pub(crate) fn cases(tiny: bool) -> Vec<Case> {
    let count = if tiny { 2000 } else { 10_000_000 };
    vec![Case::new(format!("batch/swarms={count}"), move || measure(count))]
}

fn measure(count: usize) -> Vec<Figure> {
    let (store, mut rng) = (data::store(), fastrand::Rng::with_seed(5));
    let torrents: Vec<(InfoHash, PeerV4, Action)> =
        (0..count).map(|_| (data::info_hash(&mut rng), PeerV4::random(&mut rng), Action::Seed)).collect();
    torrents.chunks(64).for_each(|batch| data::put_batch(&store.v4, batch, &mut rng));
    let announces = count.min(1_000_000);
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (figures, size) in rounds.iter_mut().zip([1, 64]) {
            // Drawn before the clock starts, so that only the store misses the cache.
            let drawn: Vec<_> = (0..announces).map(|_| torrents[rng.usize(..count)]).collect();
            let start = data::thread_time();
            drawn.chunks(size).for_each(|batch| match batch {
                [(info_hash, peer, action)] => data::put(&store.v4, info_hash, *peer, *action, &mut rng),
                batch => data::put_batch(&store.v4, batch, &mut rng),
            });
            figures.push((data::thread_time() - start).as_secs_f64() * 1e9 / announces as f64);
        }
    }
    let [single, batched] = rounds.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    });
    vec![
        Figure::new(format!("batch/swarms={count}/one"), single, "ns each, one at a time"),
        Figure::new(format!("batch/swarms={count}/64"), batched, "ns each, 64 at a time"),
        Figure::new(format!("batch/swarms={count}/gain"), single / batched, "times"),
    ]
}
