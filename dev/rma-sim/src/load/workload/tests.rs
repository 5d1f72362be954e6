//! Faults that software finds: the NIC is right here, but its reports or memory are falsified.

use rma_core::{
    addr::HostAddr,
    nic::{NicConfigBuilder, NicPlace},
    op::OpType,
    outcome::{OpName, Verdict},
};
use rma_shm::Line;

use super::*;
use crate::{
    check::invariant::Commit,
    net::{
        clock::ClockOptions,
        link::LinkOptions,
        node::{NodeOptions, Pace},
        trace::What,
    },
};

const ASKER: NodeId = NodeId(0);
const TARGET: NodeId = NodeId(1);
const AT: rma_core::time::Instant = rma_core::time::Instant::ZERO;

/// Two hosts, all of whose receives are posted.
fn network() -> (Sim, World) {
    let node = |host| NodeOptions {
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = 8;
            it.regions = REGIONS_PER_NODE;
        }),
        place: NicPlace::at(HostAddr::from([192, 0, 2, host])),
        mtu: 1500,
        rate: 1_000_000_000,
        pace: Pace::Hardware,
        receive_ring: 8,
        clock: ClockOptions::default(),
    };
    let mut sim = Sim::new(&[node(1), node(2)], LinkOptions::default(), None, 1).unwrap();
    let mut world = World::new(&mut sim, Prng::new(1));
    world.serve(TARGET).unwrap();
    (sim, world)
}

/// An op of one host on the other that should end well, as `is_it` wants it: begun, not issued.
fn begun(world: &mut World, sim: &Sim, number: u64, is_it: impl Fn(&Planned) -> bool) -> Planned {
    let sure = Chance::ppm(1_000_000);
    let bias = Bias {
        responder: Some(TARGET),
        hopeless: Chance::NEVER,
        old_keys: Chance::NEVER,
        mutations: Chance::ppm(700_000),
        rekeys: Chance::NEVER,
        recorded: sure,
    };
    let mut drawn = (0..1000).map(|_| world.plan(sim, ASKER, 0, bias));
    let planned = drawn.find(is_it).expect("of a thousand");
    let planned = Planned { number, ..planned };
    world.begin(sim, ASKER, &planned);
    planned
}

/// An op of `op_type`.
fn of(op_type: OpType) -> impl Fn(&Planned) -> bool {
    move |planned| planned.is_recorded() && planned.command.op.op_type() == op_type
}

/// Issues an op and lets it end.
fn run(sim: &mut Sim, planned: &Planned) -> Completion {
    sim.issue(ASKER, planned.command).unwrap();
    sim.end_turn(ASKER);
    while sim.step().is_some() {}
    let mut seen = Vec::new();
    sim.swap_seen(&mut seen);
    let end = seen.into_iter().find_map(|it| match it.what {
        What::Completed(completion) => Some(completion),
        _ => None,
    });
    end.expect("every op ends")
}

/// The op was applied, some time before now.
fn commit(sim: &Sim, planned: &Planned) -> Commit {
    Commit { number: planned.number, node: TARGET, at: [AT, sim.local_now(TARGET)] }
}

/// Makes the end of an op, with its target's `verdict` if it is a SETTLE, and a result of 0 if
/// asked for.
fn end(status: OpStatus, verdict: Option<Verdict>, has_result: bool) -> Completion {
    let verdict = verdict.map_or(0, |it| it as u64);
    let reached = u64::from(status == OpStatus::Timeout);
    let flags = reached | u64::from(has_result) << 3 | verdict << 4;
    Completion::from_line(&Line([(status as u64) << 16 | flags << 24, 0, 0, 0, 0, 0, 0, 0]))
        .unwrap()
}

#[test]
fn an_op_that_is_applied_twice_or_to_nobodys_surprise_is_found() {
    let (sim, mut world) = network();
    let is_wrong = |found, told| matches!(found, Err(Violation::Recorded { status, applied: true, .. }) if status == told);
    let nobodys = Commit { number: 9, node: TARGET, at: [AT; 2] };
    assert!(is_wrong(world.applied(&nobodys), None));
    let planned = begun(&mut world, &sim, 1, of(OpType::FetchAdd));
    let commit = commit(&sim, &planned);
    assert!(is_wrong(world.applied(&Commit { node: ASKER, ..commit }), None));
    let planned = begun(&mut world, &sim, 2, of(OpType::FetchAdd));
    let commit = Commit { number: planned.number, ..commit };
    assert_eq!(world.applied(&commit), Ok(()));
    assert!(is_wrong(world.applied(&commit), None));
    // After its end, whatever that was.
    let planned = begun(&mut world, &sim, 3, of(OpType::FetchAdd));
    let late = OpStatus::Timeout;
    assert_eq!(world.end(&sim, ASKER, &end(late, None, false), &planned), Ok(()));
    assert!(is_wrong(world.applied(&Commit { number: planned.number, ..commit }), Some(late)));
}

#[test]
fn an_op_whose_status_is_not_what_became_of_it_is_found() {
    let (sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, of(OpType::FetchAdd));
    let found = world.end(&sim, ASKER, &end(OpStatus::Ok, None, true), &planned);
    assert!(matches!(found, Err(Violation::Recorded { applied: false, .. })), "{found:?}");
    let planned = begun(&mut world, &sim, 2, of(OpType::FetchAdd));
    world.applied(&commit(&sim, &planned)).unwrap();
    let found = world.end(&sim, ASKER, &end(OpStatus::Nack, None, false), &planned);
    assert!(matches!(found, Err(Violation::Recorded { applied: true, .. })), "{found:?}");
}

#[test]
fn a_settle_that_says_what_is_not_so_is_found() {
    for (is_applied, verdict) in [(true, Verdict::NotApplied), (false, Verdict::Applied)] {
        let (sim, mut world) = network();
        let planned = begun(&mut world, &sim, 1, of(OpType::FetchAdd));
        let name = OpName { engine: Default::default(), counter: 7, number: 1 };
        world.named(planned.number, name);
        if is_applied {
            world.applied(&commit(&sim, &planned)).unwrap();
        }
        let purpose = Use::Settle { of: Some(planned.number) };
        let settle = Planned { purpose, number: 2, ..planned };
        let told = end(OpStatus::Ok, Some(verdict), false);
        let found = world.end(&sim, ASKER, &told, &settle);
        let is_it = |applied| applied == is_applied;
        assert!(
            matches!(found, Err(Violation::Recorded { applied, .. }) if is_it(applied)),
            "{found:?}"
        );
    }
}

#[test]
fn an_event_that_is_missing_or_another_or_of_nobody_is_found() {
    let events =
        |found, count| matches!(found, Err(Violation::Event { events, .. }) if events == count);
    // An op was applied, and no event was published.
    let (sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, of(OpType::Notify));
    world.applied(&commit(&sim, &planned)).unwrap();
    assert!(events(world.serve(TARGET).and_then(|()| world.check_rest(&sim)), 1));
    // One was published, and no op is known to have been applied.
    let (mut sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, of(OpType::Notify));
    assert_eq!(run(&mut sim, &planned).status, OpStatus::Ok);
    assert!(events(world.serve(TARGET), 0));
    // It says something else than the op, or is of another time.
    for is_other in [true, false] {
        let (mut sim, mut world) = network();
        let planned = begun(&mut world, &sim, 1, of(OpType::Notify));
        let other = begun(&mut world, &sim, 2, of(OpType::Notify));
        assert_eq!(run(&mut sim, &planned).status, OpStatus::Ok);
        let told = if is_other { &other } else { &planned };
        let Commit { at, .. } = commit(&sim, &planned);
        let at = if is_other { at } else { [AT; 2] };
        world.applied(&Commit { at, ..commit(&sim, told) }).unwrap();
        assert!(events(world.serve(TARGET), 1));
    }
}

#[test]
fn a_message_that_is_not_what_was_sent_is_found() {
    for is_wrong in [false, true] {
        let (mut sim, mut world) = network();
        let mut planned = begun(&mut world, &sim, 1, of(OpType::Send));
        assert_eq!(run(&mut sim, &planned).status, OpStatus::Ok);
        if is_wrong {
            let content = planned.content.iter().map(|octet| !octet).collect();
            planned = Planned { content, ..planned };
            world.begin_recorded(&sim, ASKER, &planned);
        }
        world.applied(&commit(&sim, &planned)).unwrap();
        let found = world.serve(TARGET);
        assert_eq!(matches!(found, Err(Violation::Event { .. })), is_wrong, "{found:?}");
    }
}

#[test]
fn an_op_that_finds_no_receive_where_one_is_posted_is_found() {
    let (_, world) = network();
    let region = world.hosts[TARGET.index()].queue(0).row.id;
    let posted = world.hosts[TARGET.index()].queue(0).layout().receives().into();
    let found = world.check_refusal(TARGET, region, |_| 0);
    assert_eq!(found, Err(Violation::NotReady { node: TARGET, posted, bound: 0 }));
    assert_eq!(world.check_refusal(TARGET, region, |_| posted), Ok(()), "all may be bound");
}

#[test]
fn bytes_of_an_ordered_op_that_are_there_too_soon_are_found_by_a_look() {
    let (sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, |it| matches!(it.purpose, Use::Board { .. }));
    let Use::Board { offset } = planned.purpose else { return };
    assert_eq!(world.look_at_boards(TARGET), Ok(()));
    let target = &world.hosts[TARGET.index()].targets()[planned.target];
    let start = target.board.as_ref().unwrap().start() + offset as u64;
    target.memory().copy_in(start, planned.data()).unwrap();
    let found = world.look_at_boards(TARGET);
    assert!(matches!(found, Err(Violation::Placed { node: TARGET, .. })), "{found:?}");
    world.applied(&commit(&sim, &planned)).unwrap();
    assert_eq!(world.look_at_boards(TARGET), Ok(()));
}

#[test]
fn a_read_of_a_board_that_puts_anything_else_into_local_memory_is_found() {
    let (mut sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, |it| matches!(it.purpose, Use::Follow { .. }));
    let ended = run(&mut sim, &planned);
    assert_eq!(world.end(&sim, ASKER, &ended, &planned), Ok(()));
    assert_eq!(world.boards().whole, 1);
    let again = begun(&mut world, &sim, 2, |it| matches!(it.purpose, Use::Follow { .. }));
    let slot = again.command.slot;
    let process = world.hosts[ASKER.index()].process_of(slot.0);
    let at = world.hosts[ASKER.index()].local_offset(slot.0) + again.area_offset as u64;
    world.hosts[ASKER.index()].local[process].1.copy_in(at, &[7]).unwrap();
    for status in [OpStatus::Ok, OpStatus::Timeout] {
        let found = world.end(&sim, ASKER, &end(status, None, false), &again);
        let is_it = matches!(found, Err(Violation::ReadOrder { at: 0, .. }));
        // The area is taken for what it is from then on.
        assert_eq!(is_it, status == OpStatus::Ok, "{found:?}");
    }
}

#[test]
fn a_word_that_changes_behind_its_history_is_found_and_told_of() {
    let (sim, mut world) = network();
    let planned = begun(&mut world, &sim, 1, of(OpType::FetchAdd));
    let Use::Atomic { offset } = planned.purpose else { return };
    let target = &world.hosts[TARGET.index()].targets()[planned.target];
    target.memory().fetch_add(offset, 5).unwrap();
    world.end(&sim, ASKER, &end(OpStatus::Nack, None, false), &planned).unwrap();
    let broken = world.check_words(&sim).unwrap_err();
    assert_eq!(broken.violation.word(), word(TARGET, 0, planned.target, offset));
    let told = broken.to_string();
    assert!(told.contains("0x0 had become 0x5 when op"), "{told}");
    assert!(told.contains("It held 0x0 at first") && told.contains("not applied by"), "{told}");
}

#[test]
fn a_key_that_nobody_was_to_install_is_found() {
    let (sim, mut world) = network();
    let host = &world.hosts[TARGET.index()];
    let rows = [&host.targets()[RESTLESS].row, &host.queue(RESTLESS).row, &host.targets()[0].row];
    for region in rows.map(|row| row.id) {
        let found = world.rekeyed(&sim, TARGET, region);
        assert_eq!(found, Err(Violation::WrongKey { node: TARGET }));
    }
}
