//! Whatever comes, in whatever order: nothing that an op had is lost, and no record lies.

use std::collections::{BTreeMap, btree_map::Entry};

use proptest::prelude::*;

use super::{stage::Stage, *};
use crate::outcome::{OpName, Verdict};

const SLOTS: u16 = 8;

/// One step of two hosts with a bad network between them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The initiator issues an op of a kind, if a slot is free.
    Issue {
        kind: u8,
        slot: u16,
        bulk: bool,
    },
    /// A frame that was sent arrives, and stays where it can arrive once more.
    Deliver(u8),
    /// Frames that wait are sent.
    Transmit,
    /// So many parts in 64 of a timeout pass.
    Pass(u8),
    /// An op is settled, whatever has become of it.
    Settle(u8),
    Post,
    Poll,
    Rekey {
        queue: bool,
    },
    Deregister {
        queue: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..9_u8, 0..SLOTS, any::<bool>())
            .prop_map(|(kind, slot, bulk)| Step::Issue { kind, slot, bulk }),
        10 => any::<u8>().prop_map(Step::Deliver),
        6 => Just(Step::Transmit),
        2 => (0..40_u8).prop_map(Step::Pass),
        2 => any::<u8>().prop_map(Step::Settle),
        2 => Just(Step::Post),
        2 => Just(Step::Poll),
        1 => any::<bool>().prop_map(|queue| Step::Rekey { queue }),
        1 => (0..8_u8).prop_map(|it| match it {
            0 => Step::Deregister { queue: true },
            1 => Step::Deregister { queue: false },
            _ => Step::Transmit,
        }),
    ]
}

/// The offset that FETCH_ADD adds to, and that nobody else writes.
const WORD: u64 = 8192;

/// The known facts of each op by its name, which never change.
#[derive(Default)]
struct Known {
    verdicts: BTreeMap<(u64, u16), Verdict>,
    commands: BTreeMap<(u64, u16), Command>,
    /// Ops that ended before they were solicited.
    unsolicited: Vec<Command>,
}

impl Known {
    fn learn(&mut self, name: OpName, verdict: Verdict) {
        let before = self.verdicts.insert((name.counter, name.number), verdict);
        assert!(before.is_none_or(|it| it == verdict), "{name:?}: {before:?}, then {verdict:?}");
    }

    /// How many of the ops of a kind, of which `all` were issued, may have been applied.
    fn count(
        &self,
        is_one: fn(&Command) -> bool,
        all: &[Command],
    ) -> core::ops::RangeInclusive<usize> {
        let with = |verdict| {
            let of = self.commands.iter().filter(|(_, of)| is_one(of));
            of.filter(|(name, _)| self.verdicts.get(name) == Some(&verdict)).count()
        };
        let unsolicited = self.unsolicited.iter().filter(|it| is_one(it)).count();
        let issued = all.iter().filter(|it| is_one(it)).count();
        with(Verdict::Applied)..=issued - unsolicited - with(Verdict::NotApplied)
    }
}

fn command(stage: &Stage, kind: u8, slot: u16) -> Command {
    match kind {
        7 => stage.pair.write(slot, 0, 4096),
        8 => stage.pair.read(slot, 0, 64),
        6 => stage.fetch_add(slot, WORD, 1),
        _ => stage.recorded_ops(slot)[usize::from(kind)],
    }
}

fn run(steps: Vec<Step>, settings: NicConfigBuilder) {
    let mut stage = Stage::with(settings);
    stage.pair.b.memory.store_release(WORD, 0).unwrap();
    let (mut all, mut events) = (Vec::new(), 0);
    let (mut known, mut flights) = (Known::default(), Vec::new());
    let mut issued: BTreeMap<u16, Command> = BTreeMap::new();
    let mut ask: Vec<(OpName, Command)> = Vec::new();
    for step in steps {
        match step {
            Step::Issue { kind, slot, bulk } => {
                if let Entry::Vacant(place) = issued.entry(slot) {
                    let class = ClassOfService::ALL[usize::from(bulk)];
                    let command = Command { class, ..command(&stage, kind, slot) };
                    stage.pair.issue(command);
                    place.insert(command);
                    all.push(command);
                }
            }
            Step::Deliver(which) => {
                if !flights.is_empty() {
                    let (to_b, flight): (bool, Flight) =
                        Clone::clone(&flights[usize::from(which) % flights.len()]);
                    let _ = if to_b {
                        stage.pair.deliver_to_b(&flight)
                    } else {
                        stage.pair.deliver_to_a(&flight)
                    };
                }
            }
            Step::Transmit => {
                flights.extend(stage.pair.requests().into_iter().map(|it| (true, it)));
                flights.extend(stage.pair.responses().into_iter().map(|it| (false, it)));
                let many = flights.len().saturating_sub(40);
                flights.drain(..many);
            }
            Step::Pass(parts) => {
                let time = stage.pair.timeout() * u32::from(parts) / 64;
                stage.pair.advance(time);
            }
            Step::Settle(which) => {
                let free = (0..SLOTS).find(|slot| !issued.contains_key(slot));
                if let Some(slot) = free
                    && !ask.is_empty()
                {
                    let (name, of) = ask[usize::from(which) % ask.len()];
                    let command = stage.settle(slot, &of, name);
                    stage.pair.issue(command);
                    issued.insert(slot, command);
                }
            }
            Step::Post => stage.queue.post_all(),
            Step::Poll => events += core::iter::from_fn(|| stage.queue.poll()).count(),
            Step::Rekey { queue } => {
                // To the key that it has: honest ops go on, under another revision.
                let region = if queue { stage.queue.id() } else { stage.pair.b.region };
                let key = stage.pair.b.key;
                let _ = stage.pair.b.nic.regions_mut().rekey(region, &key);
            }
            Step::Deregister { queue } => {
                let region = if queue { stage.queue.id() } else { stage.pair.b.region };
                let _ = stage.pair.b.nic.deregister(region);
            }
        }
        while let Some(completion) = stage.pair.a.nic.poll_completion() {
            let command = issued.remove(&completion.slot.0).expect("one end for each op");
            let is_settle = matches!(command.op, CommandOp::Settle { .. });
            let Some(name) = completion.name() else {
                known.unsolicited.extend((!is_settle).then_some(command));
                continue;
            };
            match (completion.verdict(), completion.status) {
                (Some(Verdict::Forgotten), _) | (None, OpStatus::Timeout) => {}
                (Some(verdict), _) => known.learn(name, verdict),
                (None, OpStatus::Ok) => known.learn(name, Verdict::Applied),
                (None, _) => known.learn(name, Verdict::NotApplied),
            }
            if !is_settle {
                known.commands.insert((name.counter, name.number), command);
                ask.push((name, command));
            }
        }
        stage.pair.b.nic.assert_consistent();
        let used = stage.pair.b.nic.responder.writes().recorded_under_way();
        assert!(used <= settings.pending_writes as usize);
    }
    // Everything ends, and then there is nothing left of it.
    for _ in 0..3 {
        let _ = (stage.pair.requests(), stage.pair.responses());
        stage.pair.advance(stage.pair.timeout());
    }
    let _ = stage.pair.responses();
    stage.assert_settled_down();
    // An op in doubt may have happened, and a known outcome is certain.
    events += core::iter::from_fn(|| stage.queue.poll()).count();
    let [added, told] = [is_addition, consumes].map(|is_one| known.count(is_one, &all));
    assert!(added.contains(&(stage.word(WORD) as usize)), "{} of {added:?}", stage.word(WORD));
    assert!(told.contains(&events), "{events} of {told:?}");
}

fn is_addition(command: &Command) -> bool {
    command.op.op_type() == OpType::FetchAdd
}

fn consumes(command: &Command) -> bool {
    matches!(command.op.op_type(), OpType::Send | OpType::Notify | OpType::WriteWithImm)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_no_record_lies_whatever_comes(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run(steps, NicConfigBuilder::default());
    }

    #[test]
    fn nothing_is_lost_in_tables_that_are_nearly_always_full(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let small = NicConfigBuilder {
            pending_writes: 3,
            outcome_records: 3,
            inbound_queue: 2,
            solicitation_window: 2 * OP_SIZE_MAX,
            ..NicConfigBuilder::default()
        };
        run(steps, small);
    }
}
