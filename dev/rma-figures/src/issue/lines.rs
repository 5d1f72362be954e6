//! The rate at which two cores hand each other lines, without a portal: lines of 64 bytes there,
//! and a line back for each.

use core::{
    hint::black_box,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use std::thread;

use rma_bench::pair::{cores, pin};
use rma_core::time::Clock;
use rma_xdp::time::TscClock;

/// One cache line. The last word says which message of the ring it is, and is written last.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

impl Line {
    fn write(&self, number: u64) {
        let (last, words) = self.0.split_last().expect("eight words");
        for word in words {
            word.store(number, Relaxed);
        }
        last.store(number, Release);
    }

    /// Whether it holds the message with this number, all of which is then read.
    fn read(&self, number: u64) -> bool {
        let (last, words) = self.0.split_last().expect("eight words");
        if last.load(Acquire) != number {
            return false;
        }
        black_box(words.iter().fold(0, |sum: u64, word| sum.wrapping_add(word.load(Relaxed))));
        true
    }
}

fn ring(slots: u16) -> Box<[Line]> {
    (0..slots).map(|_| Line::default()).collect()
}

/// Hands `count` lines to another core, at most `slots` of them under way. It answers each with a
/// line. How many a second.
#[must_use]
pub(super) fn lines(count: u64, slots: u16) -> f64 {
    let (there, back) = (&ring(slots), &ring(slots));
    let stop = &AtomicBool::new(false);
    let (application_core, engine_core) = cores();
    let at = |number: u64| number as usize % usize::from(slots);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(engine_core);
            // Lines are zeroed, so the first number is 1.
            let mut next = 1;
            while !stop.load(Relaxed) {
                while there[at(next)].read(next) {
                    back[at(next)].write(next);
                    next += 1;
                }
            }
        });
        let application = scope.spawn(move || {
            pin(application_core);
            let clock = TscClock::new();
            let start = clock.now();
            let (mut sent, mut done) = (0, 0);
            while done < count {
                while back[at(done + 1)].read(done + 1) {
                    done += 1;
                }
                while sent < count && sent - done < u64::from(slots) {
                    sent += 1;
                    there[at(sent)].write(sent);
                }
            }
            count as f64 / clock.now().since(start).as_secs_f64()
        });
        let rate = application.join();
        stop.store(true, Relaxed);
        rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_come_back_as_went() {
        assert!(lines(10_000, 256) > 0.0 && lines(1_000, 1) > 0.0);
    }

    #[test]
    fn a_line_holds_one_message_and_no_other() {
        let line = Line::default();
        line.write(7);
        assert!(line.read(7) && !line.read(6) && !line.read(8));
    }
}
