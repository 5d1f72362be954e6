//! The path table: what the engine must know to put a frame on the wire towards a host.
//!
//! One thread writes (the network monitor over AF_XDP, the keeper of the ways over UDP; both
//! through [`PathWriter`]), any number of threads read. It is not a cache that fetches on a miss: a
//! miss is answered with `None`, and [`PathTable::request`] asks the monitor to find the path.
//!
//! Invariant: a reader never sees a mixture of two paths, never waits for the writer, and neither
//! side allocates. The table has a fixed number of places; a full one refuses, it evicts nothing.
//!
//! # Protocol between the writer and the readers
//!
//! The table is a hash table with linear probing, at most half full. Each place is one cache line:
//! a control word, the key, two copies of the value. The low bits of the control word say whether
//! the place is empty, was removed, or is live, and which copy is the current one; the rest counts
//! changes, so that no two states of a place ever look alike.
//!
//! The writer changes a live place by filling the copy that is not current and then storing a new
//! control word. A reader loads the control word, reads key and current copy, and loads the control
//! word again: if it is the same, what was read belongs together. If the writer is descheduled half
//! way, the old copy is still whole and still current, so a reader goes on at once. A key is only
//! written into a place whose control word already says that it is not live.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
    },
};
#[cfg(feature = "xdp")]
use std::{sync::OnceLock, thread::Thread};

use crossbeam_queue::ArrayQueue;
use rma_core::{
    addr::HostAddr,
    nic::{ReceiveLenMax, TenantIndex},
    path_limits::{PathLimits, Paths},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Destinations that the table holds. More would cost cache, fewer would limit the peers of one
/// host; each takes 128 bytes (two places of one cache line, because the table stays half empty).
pub const DESTINATIONS_MAX: usize = 1024;

/// Requests of each tenant that may wait for the monitor. Further ones are dropped: the engine asks
/// again with its next frame. More: more memory. Fewer: of many that go to new hosts at once, some
/// are found later.
const REQUESTS_MAX: usize = 64;

/// Requests of all tenants that may wait: as many are taken in one go, so that none is left that
/// has waked the monitor already.
pub(super) const REQUESTS_AT_ONCE: usize = REQUESTS_MAX * TenantIndex::COUNT;

/// Losses that may wait for the monitor. More come only from many ops that were lost together, and
/// each of these says the same.
const LOSSES_MAX: usize = 256;

const PLACES: usize = 2 * DESTINATIONS_MAX;
const _: () = assert!(PLACES.is_power_of_two());

/// How often a reader looks again at a place that the writer changed meanwhile. Every further look
/// needs a further complete change, and the monitor makes some thousands a second at most.
const LOOKS_MAX: usize = 8;

/// The path of frames to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Hardware address of our interface.
    pub source_mac: [u8; 6],
    /// Hardware address of the destination or of the gateway towards it.
    pub next_hop_mac: [u8; 6],
    /// The largest IP packet, header included, in bytes: the least of interface, route and what
    /// path MTU discovery found.
    pub mtu: u32,
}

impl Path {
    /// The longest packet on this path to `destination`, in octets of UDP payload.
    #[must_use]
    pub const fn packet_len_max(&self, destination: HostAddr) -> usize {
        let len = ReceiveLenMax::of_mtu(self.mtu as usize);
        if destination.is_ipv4() { len.ipv4 } else { len.ipv6 }
    }

    /// The value as two words: each hardware address with one half of the MTU.
    fn to_words(self) -> [u64; 2] {
        let word = |mac: [u8; 6], half: u32| {
            let [a, b, c, d, e, f] = mac;
            u64::from_be_bytes([a, b, c, d, e, f, (half >> 8) as u8, half as u8])
        };
        [word(self.source_mac, self.mtu >> 16), word(self.next_hop_mac, self.mtu & 0xffff)]
    }

    fn from_words(words: [u64; 2]) -> Self {
        let mac = |word: u64| {
            let [a, b, c, d, e, f, _, _] = word.to_be_bytes();
            [a, b, c, d, e, f]
        };
        let half = |word: u64| (word & 0xffff) as u32;
        Self {
            source_mac: mac(words[0]),
            next_hop_mac: mac(words[1]),
            mtu: half(words[0]) << 16 | half(words[1]),
        }
    }
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// It is up and has carrier.
    Up,
    /// It is there, and is down or has no carrier.
    Down,
    /// No interface of that name is in the network namespace.
    Gone,
}

impl LinkState {
    const ALL: [Self; 3] = [Self::Up, Self::Down, Self::Gone];
}

/// The table has a path for as many destinations as it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path table is full: it holds {capacity} destinations")]
pub struct TableFull {
    /// Destinations that the table holds.
    pub capacity: usize,
}

/// A control word: what a place is, and how often it changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Control(u64);

impl Control {
    const EMPTY: u64 = 0;
    const REMOVED: u64 = 1;
    /// Live with copy 0 current; `LIVE + 1` is live with copy 1 current.
    const LIVE: u64 = 2;

    const fn state(self) -> u64 {
        self.0 & 3
    }

    /// The copy that readers use. Meaningless unless live.
    const fn current(self) -> usize {
        (self.0 & 1) as usize
    }

    /// The same place after one more change.
    const fn next(self, state: u64) -> Self {
        Self((self.0 & !3).wrapping_add(4) | state)
    }
}

/// One place of the table, a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    control: AtomicU64,
    key: [AtomicU64; 2],
    copies: [[AtomicU64; 2]; 2],
    /// Whether a reader found this place since the writer last asked.
    used: AtomicBool,
    /// Octets of the longest frame of an op that was OK since the writer last asked.
    heard: AtomicU16,
}

const _: () = assert!(size_of::<Place>() == 64);

fn load(words: &[AtomicU64; 2]) -> [u64; 2] {
    [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)]
}

fn store(words: &[AtomicU64; 2], values: [u64; 2]) {
    words[0].store(values[0], Ordering::Relaxed);
    words[1].store(values[1], Ordering::Relaxed);
}

/// The content that a reader found in one place.
enum Look<'p> {
    Found(Path, &'p Place),
    Empty,
    Other,
}

impl Place {
    fn look(&self, key: [u64; 2]) -> Look<'_> {
        for _ in 0..LOOKS_MAX {
            // Acquire: what was written before this control word was stored is seen below.
            let before = Control(self.control.load(Ordering::Acquire));
            match before.state() {
                Control::EMPTY => return Look::Empty,
                Control::REMOVED => return Look::Other,
                _ => {}
            }
            let found = load(&self.key);
            let words = load(&self.copies[before.current()]);
            // If any of those loads saw a later write, this fence pairs with the one that the
            // writer passed before it, and the control word below is a later one too.
            fence(Ordering::Acquire);
            if self.control.load(Ordering::Relaxed) != before.0 {
                continue;
            }
            if found != key {
                return Look::Other;
            }
            // A plain load first, so that a busy destination's line is not written every time.
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Look::Found(Path::from_words(words), self);
        }
        Look::Other
    }
}

/// Wakes the monitor out of its sleep. One system call per sleep, not one per request.
#[derive(Debug)]
pub(crate) struct Waker {
    eventfd: OwnedFd,
    signalled: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { eventfd: eventfd(0, flags)?, signalled: AtomicBool::new(false) })
    }

    pub(crate) fn wake(&self) {
        // AcqRel: a thread that finds the flag set knows that a monitor that clears it later also
        // sees what was queued before this call.
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow, it is only raised when it is zero, and the descriptor
            // does not block: there is nothing to handle.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Takes the signal back. To be called before looking at the queues.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // Fails when nobody has signalled, which is as good.
        let _ = rustix::io::read(&self.eventfd, &mut count);
        self.signalled.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// Paths by destination; see the module's documentation. 128 KiB of places and a queue of 10 KiB.
pub struct PathTable {
    places: Box<[Place]>,
    /// Unknown to those who choose destinations, so that nobody can make them collide.
    seed: [u64; 2],
    /// The farthest that a key was ever stored from its first place: a reader need not go farther.
    reach: AtomicU32,
    interface_mtu: AtomicU32,
    /// As a number, in network order; 0 while it is not known.
    interface_mac: AtomicU64,
    /// 0 while it is not known.
    interface_index: AtomicU32,
    /// A [`LinkState`].
    link: AtomicU8,
    /// The thread that is woken when that, or anything that paths follow from, has changed.
    #[cfg(feature = "xdp")]
    follower: OnceLock<Thread>,
    /// By tenant.
    requests: Box<[ArrayQueue<HostAddr>; TenantIndex::COUNT]>,
    losses: ArrayQueue<Loss>,
    /// Whether any path is shorter than the interface's MTU, or may be.
    watching: Arc<AtomicBool>,
    waker: Option<Arc<Waker>>,
}

impl fmt::Debug for PathTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathTable")
            .field("interface_mtu", &self.interface_mtu())
            .field("link_state", &self.link_state())
            .finish_non_exhaustive()
    }
}

impl PathTable {
    /// An empty table and its one writer. Nobody answers requests but the holder of the writer.
    #[must_use]
    pub fn new(interface_mtu: u32) -> (Arc<Self>, PathWriter) {
        Self::with_waker(interface_mtu, None)
    }

    pub(crate) fn with_waker(
        interface_mtu: u32,
        waker: Option<Arc<Waker>>,
    ) -> (Arc<Self>, PathWriter) {
        let random = RandomState::new();
        let table = Arc::new(Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            seed: [random.hash_one(0), random.hash_one(1)],
            reach: AtomicU32::new(0),
            interface_mtu: AtomicU32::new(interface_mtu),
            interface_mac: AtomicU64::new(0),
            interface_index: AtomicU32::new(0),
            link: AtomicU8::new(LinkState::Up as u8),
            #[cfg(feature = "xdp")]
            follower: OnceLock::new(),
            requests: Box::new(core::array::from_fn(|_| ArrayQueue::new(REQUESTS_MAX))),
            losses: ArrayQueue::new(LOSSES_MAX),
            watching: Arc::default(),
            waker,
        });
        let writer = PathWriter { table: Arc::clone(&table), live: 0, turn: 0 };
        (table, writer)
    }

    /// A table that never changes: for tests, and for networks without a kernel.
    ///
    /// # Errors
    /// [`TableFull`] for more than [`DESTINATIONS_MAX`] destinations.
    pub fn fixed(interface_mtu: u32, paths: &[(HostAddr, Path)]) -> Result<Arc<Self>, TableFull> {
        let (table, mut writer) = Self::new(interface_mtu);
        for &(destination, path) in paths {
            writer.insert(destination, path)?;
            writer.set_interface_mac(Some(path.source_mac));
        }
        Ok(table)
    }

    /// The path to `destination`, or `None` while it is not known. Takes some nanoseconds, never
    /// waits, never allocates.
    #[must_use]
    #[inline]
    pub fn lookup(&self, destination: HostAddr) -> Option<Path> {
        self.find(destination).map(|(path, _)| path)
    }

    #[inline]
    fn find(&self, destination: HostAddr) -> Option<(Path, &Place)> {
        let key = key(destination);
        let first = self.first_place(key);
        for distance in 0..=self.reach.load(Ordering::Relaxed) as usize {
            match self.places[(first + distance) % PLACES].look(key) {
                Look::Found(path, place) => return Some((path, place)),
                Look::Empty => return None,
                Look::Other => {}
            }
        }
        None
    }

    /// Asks the monitor for the path to `destination`, for `tenant`; true if the request was
    /// queued. A request may be lost when a tenant has many at once: ask again with the next frame.
    ///
    /// Never waits, never allocates; a system call only when the monitor sleeps. Ask only for
    /// destinations that have proved who they are or that the application named, else strangers can
    /// fill the table.
    pub fn request(&self, tenant: TenantIndex, destination: HostAddr) -> bool {
        let queued = self.requests[tenant.index()].push(destination).is_ok();
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        queued
    }

    /// Whether a monitor answers requests.
    #[must_use]
    pub fn has_monitor(&self) -> bool {
        self.waker.is_some()
    }

    /// Returns the limits of the paths, and the listener to ops' ends, for a NIC.
    #[must_use]
    pub fn limits(self: &Arc<Self>) -> Paths {
        Paths::new(Arc::clone(&self.watching), Arc::<Self>::clone(self))
    }

    /// Whether any path is shorter than the interface's MTU, or may be.
    #[must_use]
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// The interface's MTU, in bytes of IP packet. Follows changes.
    #[must_use]
    #[inline]
    pub fn interface_mtu(&self) -> u32 {
        self.interface_mtu.load(Ordering::Relaxed)
    }

    /// The interface's hardware address, if it is known. Follows changes.
    #[must_use]
    pub fn interface_mac(&self) -> Option<[u8; 6]> {
        let [_, _, mac @ ..] = self.interface_mac.load(Ordering::Relaxed).to_be_bytes();
        (mac != [0; 6]).then_some(mac)
    }

    /// The interface's index, if it is known. Follows changes: names change hands, and an interface
    /// that comes back has another index.
    #[must_use]
    pub fn interface_index(&self) -> Option<u32> {
        Some(self.interface_index.load(Ordering::Relaxed)).filter(|&index| index != 0)
    }

    /// Whether the interface is up and has carrier. Follows changes; without it the table is empty.
    #[must_use]
    #[inline]
    pub fn is_link_up(&self) -> bool {
        self.link_state() == LinkState::Up
    }

    /// Returns the state of the interface. Follows changes; unless it is up, the table is empty.
    #[must_use]
    pub fn link_state(&self) -> LinkState {
        LinkState::ALL[usize::from(self.link.load(Ordering::Acquire))]
    }

    /// Has `thread` unparked from now on when the interface, an address or a route may have
    /// changed. The first one that asks for it is the only one.
    #[cfg(feature = "xdp")]
    pub(crate) fn wake_on_change(&self, thread: Thread) {
        // A second one would be a second follower of one backend: there is none.
        let _ = self.follower.set(thread);
    }

    /// A folded multiplication: cheap, and good enough with a secret seed.
    #[inline]
    fn first_place(&self, key: [u64; 2]) -> usize {
        let product = u128::from(key[0] ^ self.seed[0]) * u128::from(key[1] ^ self.seed[1]);
        ((product >> 64) as u64 ^ product as u64) as usize % PLACES
    }
}

impl PathLimits for PathTable {
    fn packet_len_max(&self, peer: HostAddr) -> Option<usize> {
        self.lookup(peer).map(|path| path.packet_len_max(peer))
    }

    fn arrived(&self, peer: HostAddr, len: usize) {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        // A plain load first, as of `used`. An engine is the only one that stores more; what the
        // writer takes meanwhile and is stored again says the same.
        if let Some((_, place)) = self.find(peer)
            && place.heard.load(Ordering::Relaxed) < len
        {
            place.heard.store(len, Ordering::Relaxed);
        }
    }

    fn lost(&self, peer: HostAddr, len: usize) {
        // None of its frames with data was asked for: what was lost passes everywhere.
        if len == 0 {
            return;
        }
        // Full: what is lost with it says what the others do.
        let _ = self.losses.push(Loss { peer, len });
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }
}

/// A packet with `len` octets of UDP payload, as MTUs count; 0 stays 0.
pub(crate) fn packet_len(peer: HostAddr, len: usize) -> u32 {
    let headers = if peer.is_ipv4() { 28 } else { 48 };
    if len == 0 { 0 } else { (len + headers) as u32 }
}

/// An op that ended with TIMEOUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The peer of the lost op.
    pub(crate) peer: HostAddr,
    /// Octets of its longest frame.
    pub(crate) len: usize,
}

#[inline]
fn key(destination: HostAddr) -> [u64; 2] {
    let octets = u128::from_be_bytes(destination.to_octets());
    [(octets >> 64) as u64, octets as u64]
}

/// The one writer of a [`PathTable`].
#[derive(Debug)]
pub struct PathWriter {
    table: Arc<PathTable>,
    live: usize,
    /// The tenant whose requests are looked at next.
    turn: usize,
}

impl PathWriter {
    /// Makes `path` the path to `destination`, in place of an older one.
    ///
    /// # Errors
    /// [`TableFull`] if the destination is new and [`DESTINATIONS_MAX`] others are there.
    pub fn insert(&mut self, destination: HostAddr, path: Path) -> Result<(), TableFull> {
        let (key, words) = (key(destination), path.to_words());
        let (found, free) = self.find(key);
        if let Some(place) = found.map(|index| &self.table.places[index]) {
            let control = Control(place.control.load(Ordering::Relaxed));
            let other = 1 - control.current();
            if load(&place.copies[control.current()]) == words {
                return Ok(());
            }
            // Pairs with the readers' fence: a reader that still uses the other copy, and sees any
            // of the stores below, also sees that the control word is no longer the one it had.
            fence(Ordering::Release);
            store(&place.copies[other], words);
            let control = control.next(Control::LIVE + other as u64);
            place.control.store(control.0, Ordering::Release);
            return Ok(());
        }
        let full = TableFull { capacity: DESTINATIONS_MAX };
        let (index, distance) = free.filter(|_| self.live < DESTINATIONS_MAX).ok_or(full)?;
        let place = &self.table.places[index];
        let control = Control(place.control.load(Ordering::Relaxed));
        // As above, for readers that knew this place when it was live with another key.
        fence(Ordering::Release);
        store(&place.key, key);
        store(&place.copies[0], words);
        place.used.store(true, Ordering::Relaxed);
        place.heard.store(0, Ordering::Relaxed);
        self.table.reach.fetch_max(distance, Ordering::Relaxed);
        place.control.store(control.next(Control::LIVE).0, Ordering::Release);
        self.live += 1;
        Ok(())
    }

    /// Forgets the path to `destination`; true if there was one.
    pub fn remove(&mut self, destination: HostAddr) -> bool {
        let (Some(index), _) = self.find(key(destination)) else { return false };
        self.set_state(index, Control::REMOVED);
        self.live -= 1;
        // Places that were removed make searches longer. Before an empty place they are of no use:
        // no search goes on beyond that one.
        if self.state((index + 1) % PLACES) == Control::EMPTY {
            let mut index = index;
            while self.state(index) == Control::REMOVED {
                self.set_state(index, Control::EMPTY);
                index = (index + PLACES - 1) % PLACES;
            }
        }
        true
    }

    /// Whether a reader found `destination` since this was last asked, or since it was inserted.
    pub fn take_used(&mut self, destination: HostAddr) -> bool {
        let (Some(index), _) = self.find(key(destination)) else { return false };
        self.table.places[index].used.swap(false, Ordering::Relaxed)
    }

    /// A request that waits, and whose it is: the oldest of the tenant whose turn it is. This side
    /// of [`PathTable::request`].
    #[must_use]
    pub fn poll_request(&mut self) -> Option<(TenantIndex, HostAddr)> {
        (0..TenantIndex::COUNT).find_map(|_| {
            let tenant = TenantIndex::of(self.turn);
            self.turn = (self.turn + 1) % TenantIndex::COUNT;
            Some((tenant, self.table.requests[tenant.index()].pop()?))
        })
    }

    /// The loss that waits for longest.
    pub(crate) fn poll_loss(&mut self) -> Option<Loss> {
        self.table.losses.pop()
    }

    /// Octets of the longest frame of an op with `destination` that was OK since this was last
    /// asked. 0 if there was none, or there is no path.
    pub(crate) fn take_heard(&mut self, destination: HostAddr) -> usize {
        let (Some(index), _) = self.find(key(destination)) else { return 0 };
        self.table.places[index].heard.swap(0, Ordering::Relaxed).into()
    }

    /// Sets what [`PathTable::is_watching`] says.
    pub(crate) fn set_watching(&mut self, watching: bool) {
        self.table.watching.store(watching, Ordering::Relaxed);
    }

    /// Sets what [`PathTable::interface_mtu`] says.
    pub fn set_interface_mtu(&mut self, mtu: u32) {
        self.table.interface_mtu.store(mtu, Ordering::Relaxed);
    }

    /// Sets what [`PathTable::link_state`] says.
    pub fn set_link(&mut self, state: LinkState) {
        self.table.link.store(state as u8, Ordering::Release);
    }

    /// Says that the interface, an address or a route may have changed.
    #[cfg(feature = "xdp")]
    pub(crate) fn wake_follower(&self) {
        if let Some(thread) = self.table.follower.get() {
            thread.unpark();
        }
    }

    /// Sets what [`PathTable::interface_index`] says.
    pub fn set_interface_index(&mut self, index: u32) {
        self.table.interface_index.store(index, Ordering::Relaxed);
    }

    /// Sets what [`PathTable::interface_mac`] says.
    pub fn set_interface_mac(&mut self, mac: Option<[u8; 6]>) {
        let [a, b, c, d, e, f] = mac.unwrap_or_default();
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        self.table.interface_mac.store(mac, Ordering::Relaxed);
    }

    /// The live place of `key`, and the first place that could take it with its distance from home.
    fn find(&self, key: [u64; 2]) -> (Option<usize>, Option<(usize, u32)>) {
        let first = self.table.first_place(key);
        let mut free = None;
        for distance in 0..PLACES {
            let index = (first + distance) % PLACES;
            match self.state(index) {
                Control::EMPTY => {
                    return (None, free.or(Some((index, distance as u32))));
                }
                Control::REMOVED => free = free.or(Some((index, distance as u32))),
                _ if load(&self.table.places[index].key) == key => return (Some(index), free),
                _ => {}
            }
        }
        (None, free)
    }

    fn state(&self, index: usize) -> u64 {
        Control(self.table.places[index].control.load(Ordering::Relaxed)).state()
    }

    fn set_state(&mut self, index: usize, state: u64) {
        let control = &self.table.places[index].control;
        let next = Control(control.load(Ordering::Relaxed)).next(state);
        control.store(next.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
