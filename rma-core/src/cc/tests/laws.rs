//! Laws that hold for any settings and any feedback.

use proptest::prelude::*;

use super::*;

fn any_settings() -> impl Strategy<Value = CcConfigBuilder> {
    let windows = (1e-6..=1.0f64, 1.0..=65_535.0f64, 0.0..=1.0f64);
    let factors = (1e-6..=16.0f64, 1e-6..=1.0f64, 1e-6..=1.0f64, 1e-6..=1.0f64);
    let delays = (1..=1_000_000_000u64, 1..=1_000_000_000u64, 1..=1_000_000_000u64);
    let swift = (1e-6..=16.0f64, 1e-6..=0.9f64, 0..=1_000_000u64, 1..=9u32);
    (0..Algorithm::ALL.len(), 1..=4096u32, windows, factors, delays, swift).prop_map(
        |(algorithm, op_size, windows, factors, delays, swift)| {
            let (cwnd_min, cwnd_max, start) = windows;
            let (ai, md, beta, timeout_decr) = factors;
            CcConfigBuilder {
                algorithm: Algorithm::ALL[algorithm],
                op_size,
                op_charge_min: op_size.div_ceil(3),
                remotes: 1,
                rtt: Duration::from_nanos(delays.0),
                issue_target_delay: Duration::from_nanos(delays.1),
                inbound_target_delay: Duration::from_nanos(delays.2),
                ai,
                md,
                beta,
                timeout_decr,
                cwnd_min,
                cwnd_max,
                cwnd_initial: (cwnd_min + start * (cwnd_max - cwnd_min)).clamp(cwnd_min, cwnd_max),
                swift: SwiftParameters {
                    ai: swift.0,
                    max_mdf: swift.1,
                    fs_range: Duration::from_nanos(swift.2),
                    retx_reset_threshold: swift.3,
                    ..SwiftParameters::default()
                },
                ..CcConfigBuilder::default()
            }
        },
    )
}

/// Times in steps, so that several completions fall into one round trip, and also delays that make
/// no sense.
fn any_feedback() -> impl Strategy<Value = (u64, Feedback)> {
    let delay = || prop_oneof![0..20_000u64, 0..2_000_000_000u64, Just(u64::MAX)];
    let op_size = prop_oneof![Just(4096u32), 1..=4096u32];
    (0..10_000u64, 0..OpStatus::ALL.len(), op_size, delay(), delay()).prop_map(
        |(step, status, op_size, issue_delay_nanos, total_delay_nanos)| {
            let (now, status) = (Instant::ZERO, OpStatus::ALL[status]);
            (step, Feedback { now, op_size, status, issue_delay_nanos, total_delay_nanos })
        },
    )
}

fn any_history() -> impl Strategy<Value = Vec<(u64, Feedback)>> {
    prop::collection::vec(any_feedback(), 1..200)
}

/// Plays a history, with times that go on from step to step.
fn run(pair: &mut Pair, history: &[(u64, Feedback)], mut each: impl FnMut(&mut Pair, &Feedback)) {
    let mut now = 0;
    for (step, feedback) in history {
        now += step;
        let feedback = Feedback { now: Instant::from_nanos(now), ..*feedback };
        each(pair, &feedback);
    }
}

proptest! {
    #[test]
    fn windows_stay_within_their_limits_whatever_completions_say(
        settings in any_settings(),
        history in any_history(),
    ) {
        let mut pair = Pair::new(|builder| *builder = settings);
        let limits = settings.cwnd_min..=settings.cwnd_max;
        run(&mut pair, &history, |pair, feedback| {
            pair.give(feedback);
            let (local, remote) = pair.cwnds();
            assert!(limits.contains(&local) && limits.contains(&remote), "{local} {remote}");
            let window = pair.window();
            assert_eq!(window.cwnd(), local.min(remote));
            assert!(window.bytes().is_finite() && window.rtt().nanos().is_finite());
            assert!(window.rtt().nanos() >= 0.0);
            assert!(window.admits(0, feedback.op_size), "something can always be sent");
            let interval = window.pacing_interval_nanos(feedback.op_size);
            assert!(interval as f64 <= window.rtt().nanos() * 4096.0 / limits.start());
        });
    }

    //= 1rma#6-one-decrease-a-round-trip
    //= type=test
    #[test]
    fn a_window_is_decreased_once_in_a_round_trip_at_most(
        settings in any_settings(),
        history in any_history(),
    ) {
        let mut pair = Pair::new(|builder| *builder = settings);
        let mut last = (None, None);
        run(&mut pair, &history, |pair, feedback| {
            let before = pair.cwnds();
            pair.give(feedback);
            let after = pair.cwnds();
            let rtt = pair.window().rtt();
            for (before, after, last) in
                [(before.0, after.0, &mut last.0), (before.1, after.1, &mut last.1)]
            {
                if after < before {
                    let now = feedback.now;
                    if let Some(last) = last.replace(now) {
                        assert!(now.nanos_since(last) as f64 >= rtt.nanos());
                    }
                }
            }
        });
    }

    /// The next event comes to two copies of one state: the one that sees more delay does not have
    /// the larger window.
    #[test]
    fn more_delay_never_makes_for_a_larger_window(
        settings in any_settings(),
        history in any_history(),
        issue_delays in (0..2_000_000_000u64, 0..2_000_000_000u64),
        remote_delays in (0..2_000_000_000u64, 0..2_000_000_000u64),
        step in 0..10_000u64,
    ) {
        let windows = |issue_delay_nanos: u64, remote_delay_nanos: u64| {
            let mut pair = Pair::new(|builder| *builder = settings);
            let config = *pair.cc.config();
            let rtt = Rtt::new(settings.rtt);
            let mut controllers =
                [config.local_controller(), config.remote_controller(Moves::In)];
            let mut now = Instant::ZERO;
            run(&mut pair, &history, |_, feedback| {
                now = feedback.now;
                controllers.iter_mut().for_each(|one| one.on_completion(feedback, rtt));
            });
            let last = Feedback {
                now: now + Duration::from_nanos(step),
                op_size: 4096,
                status: OpStatus::Ok,
                issue_delay_nanos,
                total_delay_nanos: issue_delay_nanos + remote_delay_nanos,
            };
            controllers.map(|mut one| {
                one.on_completion(&last, rtt);
                one.cwnd()
            })
        };
        let order = |(a, b): (u64, u64)| (a.min(b), a.max(b));
        let (issue_delays, remote_delays) = (order(issue_delays), order(remote_delays));
        let less = windows(issue_delays.0, remote_delays.0);
        let more = windows(issue_delays.1, remote_delays.1);
        assert!(more[0] <= less[0] && more[1] <= less[1], "{more:?} after more delay than {less:?}");
    }

    /// The paper's separation of the two windows.
    //= 1rma#6-windows
    //= type=test
    #[test]
    fn neither_window_listens_to_the_other_ones_congestion(
        swift in any::<bool>(),
        history in any_history(),
    ) {
        let algorithm = if swift { Algorithm::Swift } else { Algorithm::Aimd };
        let mut pair = Pair::of(algorithm);
        run(&mut pair, &history, |pair, feedback| {
            let before = pair.cwnds();
            pair.give(feedback);
            let after = pair.cwnds();
            match feedback.status {
                OpStatus::Ok => {}
                OpStatus::DispatchTimeout => assert_eq!(before.1, after.1),
                OpStatus::Timeout | OpStatus::Nack => assert_eq!(before.0, after.0),
                _ => assert_eq!(before, after),
            }
        });
    }

    /// From anywhere, a network without congestion gives all windows back.
    #[test]
    fn windows_recover_when_congestion_is_over(history in any_history(), index in 0..4usize) {
        let algorithm = Algorithm::ALL[index];
        let mut pair = Pair::of(algorithm);
        run(&mut pair, &history, Pair::give);
        for _ in 0..10_000 {
            pair.give(&feedback(0, OpStatus::Ok, 0.0, 5.0));
        }
        let expected = if algorithm == Algorithm::Fixed { 16.0 } else { 64.0 };
        assert_eq!(pair.window().cwnd(), expected);
    }
}
