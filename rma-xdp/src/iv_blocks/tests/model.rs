//! Reserving on a disk that forgets what was not synced, by processes that die at any step, under a
//! clock that goes both ways: no value is ever counted twice. Nor where the mark itself is lost, as
//! long as the clock is right.

use core::cell::RefCell;
use std::{collections::BTreeSet, io};

use proptest::prelude::*;
use rma_core::{
    counter_mark::{Disk, Fault, Lengths, Wish, parse, reserve},
    crypto::IvCounter,
};

const LENGTHS: Lengths = Lengths { first: 8, most: 128 };
const START: u64 = 2_000_000_000_000_000_000;

/// A file's contents: as a process reads them, and what of them has been synced.
#[derive(Clone, Debug, Default)]
struct Inode {
    contents: Vec<u8>,
    durable: Vec<u8>,
    synced: bool,
}

/// The file of each of the two names.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    mark: Option<usize>,
    temporary: Option<usize>,
}

#[derive(Debug, Default)]
struct State {
    names: Names,
    durable_names: Names,
    inodes: Vec<Inode>,
    /// Steps until the process that is reserving dies. `None`: it lives.
    steps_left: Option<u8>,
}

/// A directory with the page cache in front of it.
#[derive(Debug, Default)]
struct Model(RefCell<State>);

/// The effect of a power cut on things that were not synced.
#[derive(Clone, Copy, Debug)]
struct Whim {
    names_made_it: bool,
    /// Of the contents: none, the old ones, so many octets of the new ones, all.
    contents: u8,
}

impl Model {
    /// Runs one step of a process, unless it dies first.
    fn step<T>(&self, step: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let mut state = self.0.borrow_mut();
        if let Some(left) = &mut state.steps_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("it died"))?;
        }
        Ok(step(&mut state))
    }

    fn cut_power(&self, whim: Whim) {
        let mut state = self.0.borrow_mut();
        if !whim.names_made_it {
            state.names = state.durable_names;
        }
        state.durable_names = state.names;
        for inode in &mut state.inodes {
            if !inode.synced {
                inode.contents = match whim.contents {
                    0 => Vec::new(),
                    1 => inode.durable.clone(),
                    255 => inode.contents.clone(),
                    some => inode.contents.iter().copied().take(some.into()).collect(),
                };
                inode.durable.clone_from(&inode.contents);
                inode.synced = true;
            }
        }
    }
}

impl Disk for Model {
    fn read_mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.step(|state| state.names.mark.map(|inode| state.inodes[inode].contents.clone()))
    }

    fn write_temporary(&self, contents: &[u8]) -> io::Result<()> {
        self.step(|state| {
            let inode = *state.names.temporary.get_or_insert_with(|| {
                state.inodes.push(Inode::default());
                state.inodes.len() - 1
            });
            state.inodes[inode].contents = contents.to_vec();
            state.inodes[inode].synced = false;
        })
    }

    fn sync_temporary(&self) -> io::Result<()> {
        self.step(|state| {
            let inode = &mut state.inodes[state.names.temporary.unwrap()];
            inode.durable.clone_from(&inode.contents);
            inode.synced = true;
        })
    }

    fn rename_to_mark(&self) -> io::Result<()> {
        self.step(|state| state.names.mark = state.names.temporary.take())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.step(|state| state.durable_names = state.names)
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A process counts so often, and reserves when it is time. It is started first if it is not
    /// running.
    Count { process: usize, times: u8 },
    /// A process dies at a step of its next reservation; with it the power may go, and with that
    /// all others.
    Die { process: usize, at_step: u8, power: Option<Whim> },
    /// A process dies while it does not reserve.
    Stop { process: usize },
    /// The power goes while nobody reserves.
    CutPower(Whim),
    /// The clock is set, forward or back.
    StepClock(i64),
    /// The clock cannot be told for a while, or can again.
    LoseClock(bool),
    /// Time passes.
    Pass(u16),
    /// Somebody removes the mark's file.
    LoseMark,
}

fn whim() -> impl Strategy<Value = Whim> {
    (any::<bool>(), prop_oneof![Just(0), Just(1), Just(255), 2_u8..60])
        .prop_map(|(names_made_it, contents)| Whim { names_made_it, contents })
}

fn process_event() -> impl Strategy<Value = Event> {
    let process = 0..3_usize;
    prop_oneof![
        6 => (process.clone(), 1..30_u8).prop_map(|(process, times)| Event::Count { process, times }),
        4 => (process.clone(), 0..6_u8, proptest::option::of(whim()))
            .prop_map(|(process, at_step, power)| Event::Die { process, at_step, power }),
        1 => process.prop_map(|process| Event::Stop { process }),
        1 => whim().prop_map(Event::CutPower),
    ]
}

fn event_under_a_clock_that_steps() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => process_event(),
        2 => prop_oneof![-200_i64..200, -(1 << 50)..1_i64 << 50].prop_map(Event::StepClock),
        1 => any::<bool>().prop_map(Event::LoseClock),
    ]
}

fn event_under_a_right_clock() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => process_event(),
        1 => (0..400_u16).prop_map(Event::Pass),
        2 => Just(Event::LoseMark),
    ]
}

/// The rate of a clock, if it is right.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// For each value that is counted.
    value: u64,
    /// For each time that a process is started.
    opening: u64,
}

/// The fastest hosts and the most openings that the mark's loss may meet: see the module `counter`.
const RIGHT: Pace = Pace { value: 6, opening: LENGTHS.first };
/// One first block for the last opening, and one for each process that may need a block just then.
const AHEAD_MAX: u64 = 4 * LENGTHS.first;

/// A process that runs.
#[derive(Debug)]
struct Process {
    counter: IvCounter,
    /// The end of its last block.
    after: u64,
}

/// Three processes on one machine.
struct World {
    disk: Model,
    clock: u64,
    clock_is_lost: bool,
    /// `None`: it stands, or steps.
    right: Option<Pace>,
    processes: [Option<Process>; 3],
    seen: BTreeSet<u64>,
}

impl World {
    fn new(right: Option<Pace>) -> Self {
        Self {
            disk: Model::default(),
            clock: START,
            clock_is_lost: false,
            right,
            processes: [const { None }; 3],
            seen: BTreeSet::new(),
        }
    }

    fn wants(&self, process: usize) -> bool {
        self.processes[process].as_ref().is_none_or(|process| process.counter.wants_block())
    }

    /// Reserves for a process. `false` if it could not, or died.
    fn reserve(&mut self, process: usize) -> bool {
        let wish = match &self.processes[process] {
            Some(Process { after, .. }) => Wish::Next { after: *after },
            None => {
                self.clock += self.right.map_or(0, |pace| pace.opening);
                Wish::First { floor: 0 }
            }
        };
        let clock = (!self.clock_is_lost).then_some(self.clock);
        match reserve(&self.disk, clock, wish, LENGTHS) {
            Ok(block) => {
                let after = block.end();
                match &mut self.processes[process] {
                    Some(running) => {
                        running.after = after;
                        running.counter.add(block).expect("room, and a block above the others");
                    }
                    stopped => {
                        *stopped = Some(Process { counter: IvCounter::new(block), after });
                    }
                }
                true
            }
            Err(Fault::Io { .. }) => false,
            Err(Fault::NoClock) => {
                assert!(self.clock_is_lost);
                false
            }
            Err(fault) => panic!("no crash may leave {fault:?}"),
        }
    }

    fn count(&mut self, process: usize, times: u8) {
        for _ in 0..times {
            if self.wants(process) && !self.reserve(process) && self.processes[process].is_none() {
                return;
            }
            let running = self.processes[process].as_mut().expect("it runs");
            if let Some(value) = running.counter.next() {
                self.clock += self.right.map_or(0, |pace| pace.value);
                assert!(self.seen.insert(value), "{value} was counted twice");
            }
        }
    }

    fn cut_power(&mut self, whim: Whim) {
        self.processes = [const { None }; 3];
        self.disk.cut_power(whim);
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Count { process, times } => self.count(process, times),
            Event::Die { process, at_step, power } => {
                self.disk.0.borrow_mut().steps_left = Some(at_step);
                if self.wants(process) {
                    self.reserve(process);
                }
                self.disk.0.borrow_mut().steps_left = None;
                self.processes[process] = None;
                if let Some(whim) = power {
                    self.cut_power(whim);
                }
            }
            Event::Stop { process } => self.processes[process] = None,
            Event::CutPower(whim) => self.cut_power(whim),
            Event::StepClock(by) => self.clock = self.clock.saturating_add_signed(by),
            Event::LoseClock(lost) => self.clock_is_lost = lost,
            Event::Pass(ticks) => self.clock += u64::from(ticks),
            Event::LoseMark => {
                let mut state = self.disk.0.borrow_mut();
                (state.names.mark, state.durable_names.mark) = (None, None);
                // A moment passes: who removes a file is not that quick to start a host.
                self.clock += AHEAD_MAX;
            }
        }
        let state = self.disk.0.borrow();
        if let Some(mark) = state.names.mark {
            let mark = parse(&state.inodes[mark].contents).expect("the mark is always whole");
            assert!(self.seen.last().is_none_or(|&last| last < mark), "counted beyond the mark");
            if self.right.is_some() {
                assert!(mark <= self.clock + AHEAD_MAX, "{} ahead of the clock", mark - self.clock);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    //= 1rma#A-iv-counter-and-sender
    //= type=test
    #[test]
    fn no_value_is_counted_twice_whatever_dies_and_however_the_clock_steps(
        events in proptest::collection::vec(event_under_a_clock_that_steps(), 1..40),
    ) {
        let mut world = World::new(None);
        for event in &events {
            world.happen(event);
        }
    }

    //= 1rma#A-iv-counter-and-sender
    //= type=test
    #[test]
    fn no_value_is_counted_twice_whatever_dies_and_however_often_the_mark_is_lost_under_a_right_clock(
        events in proptest::collection::vec(event_under_a_right_clock(), 1..100),
    ) {
        let mut world = World::new(Some(RIGHT));
        for event in &events {
            world.happen(event);
        }
    }
}
