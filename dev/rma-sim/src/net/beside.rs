//! The engines of one host, beside each other: where a packet lands, and the handling of frames by
//! the one that they are for.
//!
//! Frames go from engine to engine in the shipped rings ([`Neighbours`]). A frame bears a tag as
//! its link octets, which travel in the rings with it, so that whoever handles it knows which frame
//! of the simulation it is. The NIC sees none of it.

use core::{
    cell::{Cell, RefCell},
    time::Duration,
};
use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    backend::{LINK_LEN, RxFrame, TxFrame},
    crypto::{DerivedRegionKey, EngineId, KeyBinding},
    engine::{HandOvers, Neighbours},
    error::DropReason,
    nic::{KeyRings, Nic},
    op::OpType,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    region::{RegionId, RegionNames},
    seat::{Seat, Word},
    service::Service,
    time::{Clock, Instant},
    wire,
};
use rma_shm::{Flags, Line};

use crate::{
    net::{
        burst::{Came, Handled},
        clock::LocalClock,
        frame::Frame,
        stall::{Readings, Stall},
        trace::Landing,
    },
    prng::Prng,
};

/// The way in which the receive side of a host with several engines spreads packets over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// To the engine that the first frame is for; requests that are for nobody by a hash.
    #[default]
    Right,
    /// Always to another one.
    Wrong,
    /// By a hash of addresses and source port.
    Hash,
    /// By a hash of the addresses alone.
    WithoutPorts,
    /// By a hash of addresses and source port that changes whenever so much time has passed.
    Changing(Duration),
}

impl Spread {
    /// The engine of `engines` that a packet lands at which is for `owner`.
    pub(crate) fn lands_at(
        self,
        frame: &RxFrame<'_>,
        owner: Option<EngineId>,
        engines: u64,
        now: Instant,
    ) -> u64 {
        let [source, destination] = [frame.source, frame.destination];
        let hash = |port, epoch| {
            let ends = [source, destination].map(|it| u128::from_be_bytes(it.to_octets()));
            let words = [ends[0] as u64, ends[1] as u64, port, epoch];
            words.iter().fold(Prng::new(0), |prng, &word| prng.fork(word)).below(engines)
        };
        let port = frame.source_port.0.into();
        let owner = owner.map(|it| u64::from(it.0));
        match self {
            Self::Right => owner.unwrap_or_else(|| hash(port, 0)),
            Self::Wrong => owner.map_or_else(|| hash(port, 0), |it| (it + 1) % engines),
            Self::Hash => hash(port, 0),
            Self::WithoutPorts => hash(0, 0),
            Self::Changing(every) => hash(port, now.as_nanos() / (every.as_nanos() as u64).max(1)),
        }
    }
}

/// An engine's ends of what is between it and the others of its host.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) neighbours: Neighbours,
    seat: Seat,
    /// The regions there are.
    pub(crate) regions: Vec<RegionId>,
}

impl Beside {
    /// Connects the engines of a host.
    pub(crate) fn connect(nics: &mut [&mut Nic]) -> Vec<Self> {
        let seats: Vec<_> = nics.iter().map(|_| Seat::new(None, Arc::default())).collect();
        for (nic, keys) in nics.iter_mut().zip(KeyRings::connect(&seats)) {
            nic.regions_mut().set_rings(keys);
        }
        let both = Neighbours::connect(&seats).into_iter().zip(seats);
        let beside = |(neighbours, seat)| Self { neighbours, seat, regions: Vec::new() };
        both.map(beside).collect()
    }

    /// Whether other engines have put keys into its rings.
    fn has_keys(&self) -> bool {
        self.seat.news.raised() >> (Flags::COUNT / 2) != 0
    }
}

/// The regions of a host with several engines, by their names.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) names: RegionNames,
    pub(crate) homes: BTreeMap<RegionId, EngineId>,
}

impl Registry {
    pub(crate) fn new(entries: u32) -> Self {
        Self { names: RegionNames::new(entries), homes: BTreeMap::new() }
    }
}

/// A number that two keys of a region share only if they are the same; `None` if it is gone.
pub(crate) fn key_of(nic: &Nic, region: RegionId) -> Option<DerivedRegionKey> {
    let any = HostAddr::from_octets([0; 16]);
    let (initiator, responder) = (any, any);
    let binding = KeyBinding { initiator, responder, pid: Pid(0), op_type: OpType::Read };
    nic.regions().get(region).map(|entry| entry.key.derive(&binding))
}

/// Frames between two engines, by their tags.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    frames: BTreeMap<u64, Came>,
    tags: u64,
    copies: u64,
}

impl Handed {
    /// A copy of a packet is fetched.
    pub(crate) const fn land(&mut self, at: Instant) -> Landing {
        self.copies += 1;
        Landing { copy: self.copies - 1, at }
    }

    /// A tag for the next frame that is found.
    pub(crate) fn tag(&mut self) -> [u8; LINK_LEN] {
        let mut octets = [0; LINK_LEN];
        octets[..8].copy_from_slice(&self.tags.to_le_bytes());
        self.tags += 1;
        octets
    }
}

fn tag_of(frame: &RxFrame<'_>) -> u64 {
    let link = frame.link.expect("each has a tag");
    u64::from_le_bytes(*link.first_chunk().expect("it is longer"))
}

/// A NIC that handles the frames of one turn, and what became of them.
pub(crate) struct Handling<'a, D> {
    nic: &'a mut Nic,
    clock: &'a LocalClock,
    now: Instant,
    handed: &'a mut Handed,
    draw: D,
    stall: Option<Stall>,
    /// New keys, which were there before anything else.
    keys: Vec<Came>,
    came: Vec<Came>,
    /// The index in `came` of each frame of this burst, in the order of their tags.
    places: Vec<usize>,
    first_tag: u64,
    counts: Arc<HandOvers>,
    /// The keys of all regions, where others may come.
    before: Vec<(RegionId, Option<DerivedRegionKey>)>,
    /// The frame that is being given to another engine, and how many were lost before it.
    giving: Cell<Option<(u64, u64)>>,
    /// Those that were, and whether they were lost.
    given: RefCell<Vec<(u64, bool)>>,
}

impl<'a, D: FnMut(&Frame) -> Stall> Handling<'a, D> {
    /// `burst` is what was found, and which of it are frames.
    pub(crate) fn new(
        nic: &'a mut Nic,
        clock: &'a LocalClock,
        now: Instant,
        burst: (Vec<Came>, Vec<usize>),
        handed: &'a mut Handed,
        draw: D,
    ) -> Self {
        let (came, places) = burst;
        Self {
            nic,
            clock,
            now,
            first_tag: handed.tags - places.len() as u64,
            handed,
            draw,
            stall: None,
            keys: Vec::new(),
            came,
            places,
            counts: Arc::default(),
            before: Vec::new(),
            giving: Cell::new(None),
            given: RefCell::default(),
        }
    }

    /// The NIC has others beside it.
    pub(crate) fn look_at(&mut self, beside: &Beside) {
        self.counts = beside.neighbours.counts().clone();
        if beside.has_keys() {
            let regions = beside.regions.iter();
            self.before = regions.map(|&it| (it, key_of(self.nic, it))).collect();
        }
    }

    fn note_giving(&self) {
        if let Some((tag, lost)) = self.giving.take() {
            self.given.borrow_mut().push((tag, self.counts.lost() > lost));
        }
    }

    fn place_of(&self, tag: u64) -> Option<usize> {
        let index = tag.checked_sub(self.first_tag)?;
        self.places.get(index as usize).copied()
    }

    /// A batch has been delivered: those frames of it that are for other engines are theirs.
    pub(crate) fn note_given(&mut self) {
        for (tag, is_lost) in self.given.take() {
            let place = self.place_of(tag).expect("given by this engine");
            let Came::Frame { frame, extra, .. } = &self.came[place] else { continue };
            let given = Came::Given { frame: frame.clone(), extra: *extra, is_lost };
            let came = core::mem::replace(&mut self.came[place], given);
            if !is_lost {
                self.handed.frames.insert(tag, came);
            }
        }
    }

    /// All that came, and for how long the node is stopped.
    pub(crate) fn finish(self) -> (Vec<Came>, Duration) {
        let Self { mut keys, came, stall, .. } = self;
        keys.extend(came);
        (keys, stall.map_or(Duration::ZERO, |it| it.length))
    }
}

impl<D: FnMut(&Frame) -> Stall> Service for Handling<'_, D> {
    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        self.note_giving();
        let owner = self.nic.owner_of(frame)?;
        if owner != self.nic.config().place().engine {
            self.giving.set(Some((tag_of(frame), self.counts.lost())));
        }
        Some(owner)
    }

    fn take_keys(&mut self) {
        self.nic.regions_mut().take_keys();
        for (region, before) in core::mem::take(&mut self.before) {
            if key_of(self.nic, region) != before {
                self.keys.push(Came::Key(region));
            }
        }
    }

    fn note_paid(&mut self) {
        self.nic.note_paid();
    }

    fn poll_word(&mut self) -> Option<Word> {
        self.note_giving();
        self.nic.poll_word()
    }

    fn handle_word(&mut self, line: &Line) {
        self.nic.handle_word(line);
    }

    fn handle_frames(&mut self, _: Instant, _: &impl Clock, frames: &mut [RxFrame<'_>]) {
        self.note_giving();
        let mut places = Vec::new();
        for frame in &mut *frames {
            let tag = tag_of(frame);
            frame.link = None;
            places.push(self.place_of(tag).unwrap_or_else(|| {
                self.came.push(self.handed.frames.remove(&tag).expect("handed over once"));
                self.came.len() - 1
            }));
        }
        // The node is stopped once, at most: what is behind comes after it.
        let (mut first_stalled, mut left) = (0, 0);
        if self.stall.is_none() {
            first_stalled = frames.len();
            for (index, &place) in places.iter().enumerate() {
                let Came::Frame { frame, .. } = &self.came[place] else { continue };
                let stall = (self.draw)(frame);
                if !stall.length.is_zero() {
                    (first_stalled, left) = (index, stall.readings_before);
                    self.stall = Some(stall);
                    break;
                }
            }
        }
        let before = self.clock.show(self.now);
        let length = self.stall.map_or(Duration::ZERO, |it| it.length);
        let readings = Readings {
            before,
            after: self.clock.show(self.now + length),
            frames_left: Cell::new(first_stalled),
            left: Cell::new(left),
        };
        let counters = self.nic.counters().clone();
        let mut counted = [counters.late_effects(), counters.pushed_out()];
        let (mut places, came) = (places.into_iter().enumerate(), &mut self.came);
        self.nic.handle_frames_and_tell(before, &readings, frames, |result| {
            readings.frame_over();
            let now = [counters.late_effects(), counters.pushed_out()];
            let [counted_late, pushed_out] = [0, 1].map(|index| now[index] > counted[index]);
            counted = now;
            let (index, place) = places.next().expect("one for each frame");
            let is_stalled = index >= first_stalled;
            if let Came::Frame { handled, .. } = &mut came[place] {
                *handled = Handled { result, counted_late, pushed_out, is_stalled };
            }
        });
    }

    fn addresses(&self) -> &LocalAddresses {
        &self.nic.config().place().addresses
    }

    fn serves(&self, port: Port) -> bool {
        self.nic.config().place().port == port
    }

    fn frame_len(&self, _: Port, octets: &[u8]) -> Result<usize, DropReason> {
        wire::frame_len(octets)
    }

    fn note_packet(&mut self, _: Port, frames: usize) {
        self.nic.note_packet(frames);
    }

    fn drop_tail(&mut self, _: Port, tail: Tail) {
        self.nic.drop_tail(tail);
    }

    // The rest of a turn is the node's.
    fn take_commands(&mut self, _: Instant) -> usize {
        0
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn complete(&mut self) -> usize {
        0
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        None
    }

    fn frames_waiting(&self) -> usize {
        0
    }

    fn gathers(&self, _: Instant) -> bool {
        false
    }

    fn poll_transmits(&mut self, _: Instant, _: &mut [TxFrame<'_>], _: &mut Quantum) -> usize {
        0
    }

    fn wants_transmit(&self) -> bool {
        false
    }

    fn wake_sleepers(&mut self) {}

    fn announce_sleep(&self) {}

    fn awake(&self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
