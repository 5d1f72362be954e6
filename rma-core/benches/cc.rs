//! The cost of congestion control per op: `cargo bench -p rma-core --bench cc`.
//!
//! One op is one question for the window, one for the interval to the next op, and one feedback.
//! Completions come from a list that is made before, so that branches are not all alike; the
//! numbers are the best of several rounds, on one thread. An empty loop over the same list is shown
//! as well, and not subtracted.

#![expect(clippy::unwrap_used, reason = "a program that measures may fail")]

use std::{
    hint::black_box,
    time::{Duration, Instant as Now},
};

use rma_core::{
    cc::{Algorithm, CcConfigBuilder, CongestionControl, Feedback, RemoteWindowId, Window},
    op::{Moves, OpStatus},
    time::Instant,
};

const OPS: usize = 1 << 16;
const ROUNDS: usize = 40;

fn main() {
    for remotes in [1, 256] {
        println!("{remotes} remote windows, ns per op (best of {ROUNDS} rounds of {OPS} ops)");
        println!("{:<18} {:>9} {:>9} {:>9}", "", "feedback", "window", "both");
        let feedbacks = feedbacks();
        let empty = nanos_per_op(|| {
            for feedback in &feedbacks {
                black_box(feedback);
            }
        });
        println!("{:<18} {empty:>9.2} {empty:>9.2} {empty:>9.2}", "(empty loop)");
        for algorithm in Algorithm::ALL {
            let (mut cc, ids) = control(algorithm, remotes);
            let mask = ids.len() - 1;
            let feedback = nanos_per_op(|| {
                for (at, feedback) in feedbacks.iter().enumerate() {
                    cc.on_completion(ids[at & mask], black_box(feedback), u64::MAX);
                }
            });
            let window = nanos_per_op(|| {
                for (at, feedback) in feedbacks.iter().enumerate() {
                    ask(&cc.window(black_box(ids[at & mask])), feedback);
                }
            });
            let both = nanos_per_op(|| {
                for (at, feedback) in feedbacks.iter().enumerate() {
                    ask(&cc.window(black_box(ids[at & mask])), feedback);
                    cc.on_completion(ids[at & mask], black_box(feedback), u64::MAX);
                }
            });
            println!("{:<18} {feedback:>9.2} {window:>9.2} {both:>9.2}", algorithm.name());
        }
        println!();
    }
    println!("hold + release of a known window: {:.2} ns", hold_and_release());
}

fn ask(window: &Window, feedback: &Feedback) {
    black_box(window.admits(black_box(4096), feedback.op_size));
    black_box(window.pacing_interval_nanos(feedback.op_size));
}

fn hold_and_release() -> f64 {
    let (mut cc, _) = control(Algorithm::Aimd, 256);
    nanos_per_op(|| {
        for at in 0..OPS {
            let id = cc.hold([10, 0, 0, at as u8].into(), Moves::In).unwrap().id;
            cc.release(black_box(id));
        }
    })
}

fn control(algorithm: Algorithm, remotes: u32) -> (CongestionControl, Vec<RemoteWindowId>) {
    let builder = CcConfigBuilder::default().with(|it| {
        it.algorithm = algorithm;
        it.remotes = remotes;
    });
    let mut cc = CongestionControl::new(builder.build().unwrap());
    let ids = (0..remotes)
        .map(|at| cc.hold([10, 0, 0, at as u8].into(), Moves::In).unwrap().id)
        .collect();
    (cc, ids)
}

/// Delays around the targets, and one failure in 256.
fn feedbacks() -> Vec<Feedback> {
    let mut state = 1u64;
    let mut next = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let feedback = |at| {
        let issue_delay_nanos = next(1_100);
        Feedback {
            now: Instant::from_nanos(at as u64 * 330),
            op_size: 4096,
            status: if next(256) == 0 { OpStatus::Nack } else { OpStatus::Ok },
            issue_delay_nanos,
            total_delay_nanos: issue_delay_nanos + 5_000 + next(2_700),
        }
    };
    (0..OPS).map(feedback).collect()
}

fn nanos_per_op(mut round: impl FnMut()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "this measures, and has no engine's clock")]
    let mut once = || {
        let start = Now::now();
        round();
        start.elapsed()
    };
    let best = (0..ROUNDS).map(|_| once()).min().unwrap_or(Duration::MAX);
    best.as_nanos() as f64 / OPS as f64
}
