//! A policy of an application's own, good and bad.

use core::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Answers one of these after the other, and panics at a number below zero.
#[derive(Debug)]
struct Answers {
    list: &'static [f64],
    next: usize,
}

impl CongestionController for Answers {
    fn on_completion(&mut self, _: &Feedback, _: Rtt) {
        self.next += 1;
    }

    fn cwnd(&self) -> f64 {
        let cwnd = self.list[self.next.min(self.list.len() - 1)];
        assert!(cwnd >= 0.0 || cwnd.is_nan(), "a policy that panics");
        cwnd
    }
}

#[derive(Debug)]
struct Listed {
    local: &'static [f64],
    remote: &'static [f64],
    made: AtomicU32,
}

impl Listed {
    const fn new(local: &'static [f64], remote: &'static [f64]) -> Self {
        Self { local, remote, made: AtomicU32::new(0) }
    }
}

impl Policy for Listed {
    fn name(&self) -> &'static str {
        "listed"
    }

    fn local(&self, _: &CcConfig) -> Box<dyn CongestionController> {
        Box::new(Answers { list: self.local, next: 0 })
    }

    fn remote(&self, _: &CcConfig, _: Moves) -> Box<dyn CongestionController> {
        self.made.fetch_add(1, Ordering::Relaxed);
        Box::new(Answers { list: self.remote, next: 0 })
    }

    fn is_paced(&self) -> bool {
        false
    }
}

fn ok(now: u64) -> Feedback {
    feedback(now, OpStatus::Ok, 0.0, 5.0)
}

#[test]
fn a_policy_of_ones_own_rules_and_the_smaller_of_its_windows_counts() {
    static POLICY: Listed = Listed::new(&[8.0, 8.0, 8.0], &[16.0, 4.0, 9.0]);
    let mut pair = Pair::of(Algorithm::Own(&POLICY));
    assert_eq!((pair.cwnds(), pair.window().cwnd()), ((8.0, 16.0), 8.0));
    pair.give(&ok(0));
    assert_eq!((pair.cwnds(), pair.window().cwnd()), ((8.0, 4.0), 4.0));
    pair.give(&ok(1));
    assert_eq!((pair.cwnds(), pair.window().cwnd()), ((8.0, 9.0), 8.0));
    assert_eq!(pair.window().pacing_interval_nanos(4096), 0, "it is not paced");
    pair.cc.hold([192, 0, 2, 8].into(), Moves::In).unwrap();
    assert_eq!(POLICY.made.load(Ordering::Relaxed), 2, "one for each remote NIC");
}

#[test]
fn a_window_that_is_hardly_used_grows_only_if_its_policy_says_so() {
    static POLICY: Listed = Listed::new(&[64.0], &[8.0, 16.0, 32.0]);
    let mut pair = Pair::of(Algorithm::Own(&POLICY));
    pair.cc.on_completion(pair.remote, &ok(0), 4096);
    assert_eq!(pair.cwnds().1, 8.0);
    pair.cc.on_completion(pair.remote, &feedback(1, OpStatus::Timeout, 0.0, 9.0), 4096);
    assert_eq!(pair.cwnds().1, 16.0, "what failed counts");
    pair.cc.on_return(pair.remote, Instant::from_nanos(2), 3);
    assert_eq!(pair.cwnds().1, 16.0);
}

#[test]
fn a_policy_that_answers_nonsense_or_panics_leaves_a_window_within_its_limits() {
    static POLICY: Listed = Listed::new(
        &[f64::INFINITY, 0.0, f64::NAN, f64::MIN_POSITIVE, 1e300, 7.0],
        &[f64::NAN, 5.0, -1.0, 60.0],
    );
    let mut pair = Pair::of(Algorithm::Own(&POLICY));
    let settings = *pair.cc.config().settings();
    let (min, max) = (settings.cwnd_min, settings.cwnd_max);
    let mut seen = vec![pair.cwnds()];
    for now in 0..5 {
        pair.give(&ok(now));
        seen.push(pair.cwnds());
    }
    let local: Vec<f64> = seen.iter().map(|it| it.0).collect();
    assert_eq!(local, [max, min, min, min, max, 7.0]);
    // Not a number at the start: the initial window. From its panic on it is not asked any more.
    let remote: Vec<f64> = seen.iter().map(|it| it.1).collect();
    assert_eq!(remote, [settings.cwnd_initial, 5.0, 5.0, 5.0, 5.0, 5.0]);
}
