//! Steps of writers, receiver and recovery in any order.

use proptest::prelude::*;
use rma_core::{command::CommandOp, executor::RetryPolicy};

use super::*;

/// Random interleavings of writers, receiver and recovery. Each writer's messages come once and in
/// order, whoever stops for how long.
fn interleave<F: Finds>(steps: &[(u8, u8)]) -> Result<(), TestCaseError> {
    let mut it = Bench::<F>::with(4, |it| {
        (it.len, it.epochs) = (RingLen::new(1024).unwrap(), 21);
        (it.dispatch_timeout, it.timeout) = (Duration::from_millis(1), Duration::from_millis(1));
        it.hole_timeout = SharedRingConfig::hole_timeout_min(it.dispatch_timeout, it.timeout);
    });
    let (mut sent, mut got, mut next) = ([0_u64; 4], [0_u64; 4], [0_u64; 4]);
    let mut lost = [0_u8; 4];
    let mut held = Vec::new();
    let mut recoveries = 0;
    // Then nobody stops any longer, and all comes to its end.
    let end = (0..12_000_u32).map(|it| ((it % 4) as u8, [1, 2, 3, 5, 6, 2][(it / 4 % 6) as usize]));
    for (index, (who, what)) in steps.iter().copied().chain(end).enumerate() {
        let is_end = index >= steps.len();
        let who = usize::from(who % 4);
        match what % 8 {
            0 if !is_end => {
                let bytes = (who as u64) << 32 | sent[who];
                let len = 8 + (sent[who] as usize * 37 + who) % (LEN - 7);
                if it.send(who, &message(bytes, len)).is_ok() {
                    sent[who] += 1;
                }
            }
            1 => prop_assert_eq!(it.poll(who), Ok(())),
            2 | 3 if !it.under_way(who).is_empty() => {
                let index = usize::from(what) * 7 % it.under_way(who).len();
                it.senders[who].0.apply(index);
            }
            4 if !it.under_way(who).is_empty() => {
                let is_recorded = matches!(it.under_way(who)[0].op, CommandOp::Recorded { .. });
                // A call whose op was not applied so often would end, and break its sender.
                let applied = what & 8 == 0 || lost[who] == RetryPolicy::DEFAULT.timeouts;
                if is_recorded {
                    lost[who] += u8::from(!applied);
                    it.senders[who].0.lose_answer(0, applied);
                }
            }
            5 => {
                let Some(claim) = it.receiver.claim().unwrap() else { continue };
                let mut first = [0; 8];
                it.receiver.read(&claim, 0, &mut first);
                let number = u64::from_le_bytes(first);
                let (from, number) = ((number >> 32) as usize, number & 0xffff_ffff);
                prop_assert_eq!(number, next[from], "of {}", from);
                next[from] += 1;
                held.push(claim);
            }
            6 if !held.is_empty() => {
                let claim: Claim = held.remove(usize::from(what >> 3) % held.len());
                let mut bytes = vec![0; claim.len()];
                it.receiver.read(&claim, 0, &mut bytes);
                it.receiver.free(claim);
                let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                let (from, number) = ((number >> 32) as usize, number & 0xffff_ffff);
                prop_assert!(from < 4 && number < sent[from], "a ghost");
                let len = 8 + (number as usize * 37 + from) % (LEN - 7);
                prop_assert_eq!(bytes, message((from as u64) << 32 | number, len));
                got[from] += 1;
            }
            7 if recoveries < 15 => {
                it.ticks.next(it.timeout / 2);
                let found = it.receiver.poll_recovery(&it.host, it.ticks.0).unwrap();
                recoveries += u64::from(found.is_some());
            }
            _ => {}
        }
        if is_end {
            it.ticks.next(Duration::from_micros(20));
            let found = it.receiver.poll_recovery(&it.host, it.ticks.0).unwrap();
            recoveries += u64::from(found.is_some());
        }
    }
    prop_assert_eq!(got, sent, "after {} recoveries", recoveries);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_a_ghost_with_zeroing(
        steps in prop::collection::vec(any::<(u8, u8)>(), 0..800),
    ) {
        interleave::<Records>(&steps)?;
    }

    #[test]
    fn nothing_is_lost_doubled_or_a_ghost_with_events(
        steps in prop::collection::vec(any::<(u8, u8)>(), 0..800),
    ) {
        interleave::<Events>(&steps)?;
    }
}
