//! Impossible input, in a ring, in events, in settings and in terms.

use super::*;

#[test]
fn records_that_cannot_be_are_refused_for_good() {
    // The first word, the last one, and how much is reserved.
    let cases = [
        (101, 1, 2048),
        (0xffff, 1, 2048),
        (8 | 1 << 16, 1, 2048),
        (8 | 1 << 32, 1, 2048),
        (8, 65, 2048),
        (8, 1 | 64 << 32, 2048),
        (8, 1, 0),
    ];
    for (first, last, head) in cases {
        let mut it = Bench::<Records>::new(1);
        it.receiver.control().store(HEAD, head).unwrap();
        it.receiver.ring().store(16, last).unwrap();
        it.receiver.ring().store(0, first).unwrap();
        for _ in 0..2 {
            let refused = it.receiver.claim();
            assert!(matches!(refused, Err(ReceiveError::Malformed(_))), "{first:#x}: {refused:?}");
        }
    }
}

#[test]
fn events_that_cannot_be_are_refused_for_good() {
    use rma_core::{
        executor::OpCall,
        portal::{Change, Placement, Source},
    };
    // The offset, the length, the immediate, and the reserved length.
    let cases = [
        (8, 16, 0, 2048),
        (0, 101, 0, 2048),
        (0, 16, 1, 2048),
        (0, 16, 1 << 16, 2048),
        (0, 16, 64 << 32, 2048),
        (0, 16, 0, 0),
        (1984, 100, 0, 4096),
    ];
    for (remote_offset, len, immediate, head) in cases {
        let mut it = Bench::<Events>::new(1);
        it.receiver.control().store(HEAD, head).unwrap();
        let (station, sender) = &mut it.senders[0];
        let (region, grant) = sender.image_and_grant();
        let (source, placement) = (Source { region: &region, offset: 0, len }, Placement::Any);
        let change = Change::WriteWithImm { remote_offset, source, immediate, placement };
        station.link.submit_op(it.ticks.0, &OpCall::of(&grant, change)).unwrap();
        station.poll(it.ticks.0);
        station.apply_all();
        for _ in 0..2 {
            let refused = it.receiver.claim();
            let malformed = Malformed::Place { offset: remote_offset, len, immediate };
            assert_eq!(refused, Err(ReceiveError::Malformed(malformed)));
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused_at_the_opening() {
    let changes: [fn(&mut SharedRingConfig); 6] = [
        |it| it.len_max = 0,
        |it| it.len_max = 4081,
        |it| it.epochs = 0,
        |it| it.epochs = 22,
        |it| it.window = 0,
        |it| it.hole_timeout -= Duration::from_nanos(1),
    ];
    for change in changes {
        let host = hosts::host(&FakeHosts::default(), 0);
        let config = SharedRingConfig::new().with(change);
        let refused = SharedReceiver::<Records>::open(&host, config);
        assert!(matches!(refused, Err(OpenError::Settings { .. })), "{config:?}");
    }
}

#[test]
fn terms_of_the_other_kind_are_refused() {
    let hosts = FakeHosts::default();
    let [host, from, other] = [0, 1, 2].map(|number| hosts::host(&hosts, number));
    let config = SharedRingConfig::new();
    let mut receiver = SharedReceiver::<Records>::open(&host, config).unwrap();
    let terms = receiver.admit(&host, from.peer).unwrap();
    assert!(SharedSender::<WithImmediate>::join(&from, &terms).is_err());
    assert!(SharedSender::<Record>::join(&other, &terms).is_err(), "somebody else");
    assert!(SharedSender::<Record>::join(&from, &terms).is_ok());
}
