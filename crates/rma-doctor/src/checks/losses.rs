//! Counters of frames that were lost.

use super::{Answer, Answered, Subject};
use crate::snapshot::Losses;

/// The counters that count frames without a buffer.
fn counters(it: &Losses) -> [(&'static str, u64); 3] {
    [("rx_missed_errors", it.missed), ("rx_fifo_errors", it.fifo), ("rx_over_errors", it.over)]
}

pub(super) fn losses(subject: &Subject<'_>) -> Answered {
    let [before, after] = subject.interface.losses.get()?;
    for ((name, before), (_, after)) in counters(before).into_iter().zip(counters(after)) {
        let grown = after.saturating_sub(before);
        if grown > 0 {
            return Ok(Answer::mend(format!("{name} grew by {grown} in a second"))
                .wanted("none")
                .command(format!("ethtool -S {}", subject.name()))
                .why("the device had no buffer for frames: the engine stands still too long, or rings are short"));
        }
    }
    let all =
        counters(after).into_iter().filter(|it| it.1 > 0).map(|it| format!("{} {}", it.0, it.1));
    let all: Vec<String> = all.collect();
    Ok(if all.is_empty() {
        Answer::ok("none")
    } else {
        Answer::note(format!("{}, none in the last second", all.join(", ")))
    })
}
