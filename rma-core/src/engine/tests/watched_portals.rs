//! The choice of an engine among many portals: no command waits for a look that does not come, and
//! what somebody writes into his flags is his own concern.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use rma_shm::{Flags, Mapping};

use super::*;
use crate::portal::{Flag, FlagLender};

/// Longer than a portal is watched after its last command.
const QUIET: Duration = Duration::from_millis(2);

/// Slots of each portal here.
const FEW: u16 = 4;

type TestEngine = Engine<Lost, HandClock>;

/// Has `engine` serve one more portal, behind those of [`engine`], whose flag is `flag`.
fn serve(engine: &mut TestEngine, number: u16, flag: Option<Flag>) -> CommandPortal {
    let slots = number * FEW..(number + 1) * FEW;
    engine.service_mut().nic_mut().configure_slots(slots.clone(), Some(PID));
    let addresses = local().into();
    let nic = NicTag(1);
    let (portal, port) = portal(PortalConfig { slots, pid: PID, addresses, bell: None, flag, nic });
    engine.service_mut().attach(port);
    portal
}

/// An engine with `count` portals that have flags, which have been quiet for long.
fn quiet(count: u16) -> (TestEngine, Vec<CommandPortal>, RegisteredRegion) {
    let (mut engine, _, sink) = engine(0);
    let mut lender = FlagLender::new();
    let portals =
        (0..count).map(|number| serve(&mut engine, number, Some(lender.lend()))).collect();
    be_quiet(&mut engine);
    (engine, portals, sink)
}

/// Turns until no portal is watched any longer that has a flag and nothing to do.
fn be_quiet(engine: &mut TestEngine) {
    for _ in 0..100 {
        pass(engine, QUIET);
        engine.turn();
    }
    assert!(engine.is_idle());
}

/// The portals whose requests have been sent since the last call, in that order.
fn sent(engine: &mut TestEngine) -> Vec<u16> {
    core::mem::take(&mut engine.backend_mut().0).into_iter().map(|slot| slot / FEW).collect()
}

fn flag_of(flags: &Flags, index: u32) -> Option<Flag> {
    Some(Flag::new(flags.clone(), index))
}

/// An application in another process, which does not stop.
#[test]
fn a_portal_that_is_closed_takes_no_further_command_and_its_slots_come_back_within_the_bound() {
    for has_flag in [false, true] {
        let (mut engine, _, sink) = engine(0);
        let flag = has_flag.then(|| FlagLender::new().lend());
        let (mut portal, slots) = (serve(&mut engine, 0, flag), 0..FEW);
        read(&mut portal, &sink);
        engine.turn();
        let mut turns = 0;
        while engine.service_mut().detach(&slots).is_none() {
            assert!(turns < 20, "two timeouts");
            while portal.poll().is_some() {}
            if portal.next_slot().is_some() {
                read(&mut portal, &sink);
            }
            pass(&engine, Duration::from_millis(10));
            engine.turn();
            turns += 1;
        }
        assert!(turns > 0 && engine.service().nic().are_free(slots) && engine.is_idle());
    }
}

#[test]
fn a_portal_that_was_quiet_is_served_in_the_turn_after_its_command_and_keeps_the_engine_awake() {
    let (mut engine, mut portals, sink) = quiet(100);
    for round in 0..3 {
        for number in [99, 0, 64, 63] {
            read(&mut portals[number], &sink);
            assert!(!engine.is_idle(), "round {round}, portal {number}");
            assert!(engine.turn() > 0);
            assert_eq!(sent(&mut engine), [number as u16]);
        }
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        for number in [99, 0, 64, 63] {
            assert_eq!(portals[number].poll().unwrap().status, OpStatus::Timeout);
        }
        be_quiet(&mut engine);
    }
}

#[test]
fn portals_with_flags_take_turns_as_those_without_do() {
    let (mut engine, mut portals, sink) = quiet(3);
    for first in [0, 1, 2, 0] {
        for portal in &mut portals {
            (0..FEW).for_each(|_| read(portal, &sink));
        }
        engine.turn();
        let turns: Vec<_> = (first..first + 3 * FEW).map(|index| index % 3).collect();
        assert_eq!(sent(&mut engine), turns);
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        portals.iter_mut().for_each(|portal| while portal.poll().is_some() {});
        // A quiet portal loses no turn either, and it gains none.
        if first != 2 {
            pass(&engine, QUIET / 4);
            engine.turn();
        }
    }
}

/// The application reads only whether its flag is up: a flag that went down between its push and
/// its look would be a command that waits.
#[test]
fn a_command_that_comes_while_its_flag_goes_down_is_taken() {
    const ROUNDS: u32 = 20_000;
    let (mut engine, portals, sink) = quiet(2);
    let [mut one, _other] = <[_; 2]>::try_from(portals).unwrap();
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                while one.outstanding() > 0 {
                    let _ = one.poll();
                    thread::yield_now();
                }
                read(&mut one, &sink);
                taken.store(round, SeqCst);
            }
            while one.outstanding() > 0 {
                let _ = one.poll();
                thread::yield_now();
            }
        });
        let (mut since, mut seen) = (0, 0);
        while engine.service().nic().counters().completions(OpStatus::Timeout) < ROUNDS.into() {
            // Each turn is one in which a portal without commands has been quiet for long enough.
            pass(&engine, Duration::from_millis(150));
            engine.turn();
            let now = taken.load(SeqCst);
            since = if now == seen { since + 1 } else { 0 };
            seen = now;
            if since > 1000 {
                thread::yield_now();
            }
            assert!(since < 50_000_000, "command {now} is not taken");
        }
    });
}

#[test]
fn many_portals_in_use_are_all_served_and_few_of_them_stay_watched() {
    let (mut engine, mut portals, sink) = quiet(200);
    for _ in 0..3 {
        for portal in &mut portals {
            read(portal, &sink);
        }
        (0..8).for_each(|_| {
            engine.turn();
            pass(&engine, Duration::from_micros(1));
        });
        let mut served = sent(&mut engine);
        served.sort_unstable();
        assert_eq!(served, (0..200).collect::<Vec<_>>());
        pass(&engine, Duration::from_secs(1));
        for _ in 0..8 {
            engine.turn();
        }
        for portal in &mut portals {
            assert!(portal.poll().is_some() && portal.poll().is_none());
        }
    }
}

#[test]
fn flags_follow_their_portals_when_others_come_and_go() {
    // Words of their own, and several in one.
    let words = [(); 3].map(|()| Flags::new());
    let place = [(0, 0), (0, 63), (1, 7), (2, 1), (2, 0), (2, 40)];
    for gone in 0..place.len() {
        let (mut engine, _, sink) = engine(0);
        let mut portals: Vec<_> = (0..)
            .zip(place)
            .map(|(number, (word, index))| serve(&mut engine, number, flag_of(&words[word], index)))
            .collect();
        be_quiet(&mut engine);
        let slots = portals.remove(gone).slots().clone();
        assert!(engine.service_mut().detach(&slots).is_some());
        for portal in &mut portals {
            read(portal, &sink);
            assert!(!engine.is_idle());
            engine.turn();
            assert_eq!(sent(&mut engine), [portal.slots().start / FEW]);
        }
        // Its flag is nobody's now, though it is up.
        let (word, index) = place[gone];
        words[word].raise(index);
        pass(&engine, Duration::from_secs(1));
        engine.turn();
        be_quiet(&mut engine);
        // The next owner of its slots and its flag, which is up already, is served.
        let mut again = serve(&mut engine, gone as u16, flag_of(&words[word], index));
        read(&mut again, &sink);
        engine.turn();
        assert_eq!(sent(&mut engine), [gone as u16]);
    }
}

#[test]
fn two_portals_with_one_flag_are_both_served() {
    let (mut engine, _, sink) = engine(0);
    let flags = Flags::new();
    let mut portals = [0, 1].map(|number| serve(&mut engine, number, flag_of(&flags, 5)));
    for number in [0, 1, 1, 0] {
        be_quiet(&mut engine);
        read(&mut portals[number], &sink);
        engine.turn();
        assert_eq!(sent(&mut engine), [number as u16]);
    }
    let slots = portals[0].slots().clone();
    pass(&engine, Duration::from_secs(1));
    engine.turn();
    assert!(engine.service_mut().detach(&slots).is_some());
    be_quiet(&mut engine);
    read(&mut portals[1], &sink);
    engine.turn();
    assert_eq!(sent(&mut engine), [1]);
}

/// A thread that plays a process: it has its portals' flags in memory of its own, and writes
/// anything there. Another process's flags are elsewhere.
#[test]
fn a_process_that_scribbles_over_its_flags_holds_up_nobody_else() {
    const OPS: usize = 3000;
    let (mut engine, _, sink) = engine(0);
    let mapping = Arc::new(Mapping::heap(Flags::FOOTPRINT));
    let his = Flags::at(&mapping, 0).unwrap();
    let hostile: Vec<_> = (0..20)
        .map(|number| serve(&mut engine, number, flag_of(&his, 3 * number as u32)))
        .collect();
    let mut honest = serve(&mut engine, 20, Some(FlagLender::new().lend()));
    let (stop, hostile) = (AtomicBool::new(false), Mutex::new(hostile));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut hostile = hostile.lock().unwrap();
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            while !stop.load(SeqCst) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let words = mapping.words();
                match random & 3 {
                    0 => words[0].store(random, SeqCst),
                    1 => words[0].store(0, SeqCst),
                    2 => words[(random >> 8) as usize % words.len()].store(!0, SeqCst),
                    _ => {
                        let portal = &mut hostile[(random >> 8) as usize % 20];
                        while portal.poll().is_some() {}
                        if portal.next_slot().is_some() {
                            read(portal, &sink);
                        }
                    }
                }
            }
        });
        let (mut most, mut ops) = (0, 0);
        // Until both have met: his thread may begin late.
        while ops < OPS || most <= 1 {
            ops += 1;
            assert!(ops < 1000 * OPS, "the other one issues no ops");
            if ops > OPS {
                thread::yield_now();
            }
            read(&mut honest, &sink);
            engine.turn();
            let own = |slots: &Vec<u16>| slots.iter().filter(|&&slot| slot / FEW == 20).count();
            assert_eq!(own(&engine.backend().0), 1, "its command waited for nobody");
            most = most.max(engine.backend().0.len());
            engine.backend_mut().0.clear();
            pass(&engine, Duration::from_millis(150));
            engine.turn();
            engine.backend_mut().0.clear();
            assert_eq!(honest.poll().unwrap().status, OpStatus::Timeout);
        }
        stop.store(true, SeqCst);
    });
    // Commands whose flags he has lowered wait, and are his own. As soon as he raises them again
    // his portals work, whatever he wrote before.
    mapping.words()[0].store(!0, SeqCst);
    let mut hostile = hostile.into_inner().unwrap();
    for _ in 0..200 {
        pass(&engine, Duration::from_secs(1));
        engine.turn();
    }
    for (number, portal) in hostile.iter_mut().enumerate() {
        while portal.poll().is_some() {}
        engine.backend_mut().0.clear();
        read(portal, &sink);
        engine.turn();
        assert_eq!(sent(&mut engine), [number as u16]);
    }
}
