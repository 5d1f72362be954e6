//! The engines of a server: how many are asked for, who turns them, and what came to each.

use rma_xdp::{EngineInfo, Host, InlineHost, device::Engines};

use crate::{cores, line};

/// The text is no number of engines.
#[derive(Debug, thiserror::Error)]
#[error("give a number, 1 to 32, or per-queue for one for each receive queue")]
pub(super) struct NoNumber;

/// Reads how many engines there are to be. That a host can have so many is for it to say.
pub(super) fn parse(text: &str) -> Result<Engines, NoNumber> {
    match text {
        "per-queue" => Ok(Engines::PerQueue),
        number => number.parse().map(Engines::Count).ok().ok_or(NoNumber),
    }
}

/// A host that serves, by who turns its engines.
pub(super) trait Turned {
    /// Whether that is for this thread to do.
    const IS_HERE: bool;

    /// One turn, if it is. Returns how much there was to do.
    fn turn_here(&mut self) -> usize;
}

impl Turned for InlineHost {
    const IS_HERE: bool = true;

    #[inline]
    fn turn_here(&mut self) -> usize {
        self.turn()
    }
}

impl Turned for Host {
    const IS_HERE: bool = false;

    fn turn_here(&mut self) -> usize {
        0
    }
}

/// Says which queues and cores several engines have.
pub(super) fn introduce(engines: &[EngineInfo]) {
    for (number, EngineInfo { queues, core, .. }) in several(engines) {
        let core = core.map_or_else(String::new, |core| format!(", core {core}"));
        line!("  engine {number:<2} queues {}{core}", queue_list(queues));
    }
}

/// Says what came to several engines, and where it landed.
pub(super) fn report(engines: &[EngineInfo]) {
    for (number, engine) in several(engines) {
        let EngineInfo { is_up, handed_over, handed_over_lost, taken_over, .. } = *engine;
        let received = engine.counters.frames_received();
        let right = received.saturating_sub(taken_over);
        let share = match received {
            0 => String::new(),
            _ => format!(" ({:.1} %)", 100.0 * right as f64 / received as f64),
        };
        let lost = if handed_over_lost > 0 {
            format!(", {handed_over_lost} lost on the way")
        } else {
            String::new()
        };
        let end = if is_up { "" } else { "; it has ended, its panic message says where" };
        line!(
            "  engine {number:<2} {received} frames, {right} landed right{share}, handed over {handed_over}{lost}{end}"
        );
    }
}

/// The engines with their numbers, if they are several.
fn several(engines: &[EngineInfo]) -> impl Iterator<Item = (usize, &EngineInfo)> {
    engines.iter().enumerate().filter(|_| engines.len() > 1)
}

/// Queues in a list, as cores are.
fn queue_list(queues: &[u32]) -> String {
    let queues: Vec<usize> = queues.iter().map(|&queue| queue as usize).collect();
    cores::Text(&queues).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_a_number_or_one_for_each_queue() {
        let of = |text| parse(text).unwrap();
        assert_eq!((of("2"), of("per-queue")), (Engines::Count(2), Engines::PerQueue));
        assert_eq!(parse(&Engines::default().to_string()).unwrap(), Engines::Count(1));
        for text in ["", "two", "-1", "2 ", "queues"] {
            assert!(parse(text).unwrap_err().to_string().contains("or per-queue"), "{text}");
        }
        assert_eq!(queue_list(&[0, 2, 3]), "0,2-3");
    }
}
