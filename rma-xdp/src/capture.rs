//! Captures of a host's packets, both ways, with what became of each frame: what `tcpdump` does not
//! see of AF_XDP. The file is pcapng, as [`rma_core::capture`] says.
//!
//! A [`Capture`] puts a tap into each engine, which copies packets into a ring of 8 MiB, and a
//! thread writes what is in the rings. Engines never wait: what a ring has no room for is missed,
//! counted and told in the file. Without a capture an engine has one branch more for each packet.
//!
//! Packets of one engine are in the order in which they came and went; those of several, nearly.
//!
//! [`CaptureEndpoint`] lets `rma-bench capture` do it from outside, by a Unix socket.

mod endpoint;
mod whole;

pub use self::{
    endpoint::{CaptureEndpoint, CaptureEndpointError, DIRECTORY},
    whole::{WholeFile, packets_in, whole_blocks},
};

use core::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    time::Duration,
};
use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rma_app::{TscClock, event_fd::EventFd};
use rma_core::{
    capture::{Blocks, Captured, Comment, Fate},
    portal::{Bell, Wake},
    time::Clock,
};
use rma_shm::{Told, Worker};

use crate::device::tap::{Record, Tap, TapReader, TapSlot, wall_nanos};

/// The longest snap length: no packet is longer.
pub const SNAP_MAX: usize = 65_535;

/// How long the writer sleeps when the rings are empty. Longer: more must fit into the rings.
/// Shorter: more of a core for nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// How long an engine may take to give back its tap. An inline host that does not turn gives it
/// back when it does.
const SWAP_WITHIN: Duration = Duration::from_millis(200);

/// The most records of an engine that are written with one call.
const RECORDS_AT_ONCE: usize = 4096;

/// An engine, as whoever captures reaches it.
#[derive(Debug)]
pub(crate) struct Tapped {
    pub(crate) slot: Arc<TapSlot>,
    pub(crate) bell: Option<Bell>,
    /// The names of its receive queues.
    pub(crate) interfaces: Vec<String>,
}

/// The settings of a capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureConfig {
    /// How many octets of each packet are kept, headers included: 0 to [`SNAP_MAX`]. With 0 there
    /// are no octets, only times, lengths and fates. Default: 128, enough for all headers of a
    /// frame that is alone in its packet.
    pub snap: usize,
    /// The holder of the capture, as others are told. Default: this process.
    pub holder: String,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self { snap: 128, holder: format!("process {}", std::process::id()) }
    }
}

rma_core::settings!(CaptureConfig);

/// The reason why there is no capture, or no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Another one is under way.
    #[error("{holder} captures this host already; end that capture first, or wait for its end")]
    Busy {
        /// The holder of that one.
        holder: String,
    },
    /// The snap length is too long.
    #[error("a snap length of {snap} octets: give 0 to 65535")]
    Snap {
        /// The refused length.
        snap: usize,
    },
    /// The packets cannot be written.
    #[error(
        "the capture ended after {packets} packets, as it cannot be written: {source}; the host goes on, and what was written is whole"
    )]
    Write {
        /// Packets in it.
        packets: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// The system had no descriptor or thread left.
    #[error("{what} for a capture: {}", Told::of_thread(source))]
    System {
        /// The action that failed.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// The numbers of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureTotals {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that are not, as the writer did not keep up.
    pub missed: u64,
}

impl fmt::Display for CaptureTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets captured, {} missed", self.packets, self.missed)
    }
}

/// The way to capture a host, from any thread, also when the host is gone.
///
/// ```
/// # use rma_xdp::{Host, HostConfig, capture::{CaptureConfig, WholeFile}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::open(HostConfig::udp([127, 0, 0, 35]))?;
/// # let path = std::env::temp_dir().join(format!("rma-{}.pcapng", std::process::id()));
/// let file = WholeFile::create(&path)?;
/// let config = CaptureConfig::default().with(|it| it.snap = 256);
/// let capture = host.capture_source().start(file, config)?;
/// // ...
/// println!("{}", capture.finish()?);
/// # std::fs::remove_file(path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CaptureSource(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    engines: Box<[Tapped]>,
    holder: Mutex<Option<String>>,
}

impl Shared {
    fn holder(&self) -> MutexGuard<'_, Option<String>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CaptureSource {
    pub(crate) fn new(engines: Vec<Tapped>) -> Self {
        Self(Arc::new(Shared { engines: engines.into(), holder: Mutex::new(None) }))
    }

    /// Starts a capture that writes to `out`, whole blocks with each call. The thread has the
    /// calling thread's CPU affinity. An inline host is tapped in one of its next turns.
    ///
    /// # Errors
    /// If there is a capture of this host already, or it cannot be started.
    pub fn start(
        &self,
        out: impl Write + Send + 'static,
        config: CaptureConfig,
    ) -> Result<Capture, CaptureError> {
        let CaptureConfig { snap, holder } = config;
        if snap > SNAP_MAX {
            return Err(CaptureError::Snap { snap });
        }
        let seat = Seat::take(&self.0, holder)?;
        let wake = EventFd::open()
            .map_err(|source| CaptureError::System { what: "creating an eventfd", source })?;
        let state = Arc::new(State {
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            wake,
            outcome: Mutex::new(None),
        });
        let (taps, readers): (Vec<_>, Vec<_>) =
            self.0.engines.iter().map(|_| Tap::new(snap)).unzip();
        let mut writer = Writer::new(seat, readers, Box::new(out), snap, state.clone());
        // Before there is a writer, which takes them out again when it ends.
        for (engine, tap) in self.0.engines.iter().zip(taps) {
            engine.offer(Some(tap));
        }
        let thread = Worker::start("rma-capture", move || writer.run()).map_err(|source| {
            self.0.engines.iter().for_each(|engine| engine.offer(None));
            CaptureError::System { what: "starting the thread", source }
        })?;
        tracing::info!(snap, "capture started");
        Ok(Capture { state, source: self.clone(), thread: Some(thread) })
    }
}

impl Tapped {
    fn offer(&self, tap: Option<Box<Tap>>) {
        self.slot.offer(tap);
        if let Some(bell) = &self.bell {
            bell.wake.wake();
        }
    }
}

/// A capture that is under way. Dropped, it ends.
#[derive(Debug)]
#[must_use]
pub struct Capture {
    state: Arc<State>,
    source: CaptureSource,
    thread: Option<Worker>,
}

#[derive(Debug)]
struct State {
    stop: AtomicBool,
    is_over: AtomicBool,
    wake: EventFd,
    outcome: Mutex<Option<Result<CaptureTotals, CaptureError>>>,
}

impl Capture {
    /// Whether all engines have their taps: packets are captured from now on.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.source.0.engines.iter().all(|engine| engine.slot.is_taken())
    }

    /// Whether it has ended by itself: what was captured could not be written, or the host is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_over.load(SeqCst)
    }

    /// Ends it: takes the taps out, writes what they have seen, and the statistics.
    ///
    /// # Errors
    /// If that could not be written.
    pub fn finish(mut self) -> Result<CaptureTotals, CaptureError> {
        self.end();
        let outcome = self.state.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.unwrap_or_else(|| Ok(CaptureTotals::default()))
    }

    fn end(&mut self) {
        self.state.stop.store(true, SeqCst);
        self.state.wake.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

/// The one capture that a host may have.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>, holder: String) -> Result<Self, CaptureError> {
        let mut held = shared.holder();
        if let Some(holder) = &*held {
            return Err(CaptureError::Busy { holder: holder.clone() });
        }
        *held = Some(holder);
        drop(held);
        Ok(Self(shared.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.holder() = None;
    }
}

/// The thread that writes.
struct Writer {
    engines: Box<[EngineTap]>,
    blocks: Blocks,
    interfaces: u32,
    out: Box<dyn Write + Send>,
    snap: usize,
    state: Arc<State>,
    packets: u64,
    // Dropped last: then the next capture may begin.
    seat: Seat,
}

/// An engine, as the writer knows it.
struct EngineTap {
    reader: TapReader,
    /// The numbers of its queues' interfaces in the file.
    interfaces: Vec<u32>,
}

impl Writer {
    fn new(
        seat: Seat,
        readers: Vec<TapReader>,
        out: Box<dyn Write + Send>,
        snap: usize,
        state: Arc<State>,
    ) -> Self {
        let mut blocks = Blocks::new(concat!("1rma ", env!("CARGO_PKG_VERSION")));
        let mut interfaces = 0;
        let engines = readers.into_iter().zip(&*seat.0.engines).map(|(reader, tapped)| {
            let numbers = tapped.interfaces.iter().map(|name| {
                blocks.interface(name, snap);
                interfaces += 1;
                interfaces - 1
            });
            EngineTap { interfaces: numbers.collect(), reader }
        });
        let engines = engines.collect();
        Self { engines, blocks, interfaces, out, snap, state, packets: 0, seat }
    }

    fn run(&mut self) {
        let written = self.write_until_stopped();
        // Before what takes time: nobody wants these packets any more.
        if written.is_err() {
            self.take_taps_out();
        }
        let outcome = written.map_err(|source| {
            tracing::warn!(%source, "a capture cannot be written: it has ended");
            CaptureError::Write { packets: self.packets, source }
        });
        *self.state.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.state.is_over.store(true, SeqCst);
    }

    fn write_until_stopped(&mut self) -> io::Result<CaptureTotals> {
        self.write_out()?;
        while !self.state.stop.load(SeqCst) && !self.hosts_are_gone() {
            if !self.write_round()? {
                self.state.wake.sleep(Some(PAUSE));
            }
        }
        self.take_taps_out();
        while self.write_round()? {}
        let missed = self.write_statistics()?;
        self.out.flush()?;
        Ok(CaptureTotals { packets: self.packets, missed })
    }

    fn hosts_are_gone(&self) -> bool {
        self.seat.0.engines.iter().all(|engine| engine.slot.has_ended())
    }

    fn take_taps_out(&self) {
        let engines = &self.seat.0.engines;
        engines.iter().for_each(|engine| engine.offer(None));
        let clock = TscClock::new();
        let until = clock.now() + SWAP_WITHIN;
        while clock.now() < until && !engines.iter().all(|engine| engine.slot.is_taken()) {
            std::thread::park_timeout(PAUSE);
        }
        engines.iter().for_each(|engine| engine.slot.free());
    }

    /// Writes what the rings have. Returns whether that was something.
    fn write_round(&mut self) -> io::Result<bool> {
        let Self { engines, blocks, interfaces, snap, packets, .. } = self;
        let mut all: Vec<(&Record, u32)> = Vec::new();
        for EngineTap { reader, interfaces: its } in engines {
            for record in reader.read(RECORDS_AT_ONCE) {
                while record.queue >= its.len() {
                    blocks.interface(&format!("another queue, {}", its.len()), *snap);
                    its.push(*interfaces);
                    *interfaces += 1;
                }
                all.push((record, its[record.queue]));
            }
        }
        // Stable: those of one engine are in their order already.
        all.sort_by_key(|(record, _)| record.at);
        for (record, interface) in &all {
            write_record(blocks, record, *interface);
        }
        *packets += all.len() as u64;
        let any = !all.is_empty();
        self.write_out()?;
        Ok(any)
    }

    fn write_statistics(&mut self) -> io::Result<u64> {
        let at = wall_nanos();
        let mut all_missed = 0;
        for EngineTap { reader, interfaces } in &mut self.engines {
            let news = reader.last_news();
            let counts = &reader.counts;
            let (seen, missed) = (counts.seen.load(Relaxed), counts.missed.load(Relaxed));
            all_missed += missed;
            // An engine does not count by queues: the first stands for all of them.
            for (index, &interface) in interfaces.iter().enumerate() {
                let numbers = if index == 0 { [seen, missed] } else { [0, 0] };
                let comments = news.iter().filter(|_| index == 0).map(|&back| comment_of(back));
                self.blocks.statistics(interface, at, numbers, comments);
            }
        }
        self.write_out()?;
        Ok(all_missed)
    }

    fn write_out(&mut self) -> io::Result<()> {
        let octets = self.blocks.octets();
        if !octets.is_empty() {
            self.out.write_all(octets)?;
            self.blocks.clear();
        }
        Ok(())
    }
}

fn write_record(blocks: &mut Blocks, record: &Record, interface: u32) {
    let &Record { at, queue: _, ref octets, len, missed, ref fates, ref news, .. } = record;
    let direction = record.direction();
    let packet = Captured { interface, at, direction, octets, len, missed };
    let of = fates.len();
    let frames = fates.iter().enumerate().map(|(index, &code)| {
        let fate = Fate::from_code(code).unwrap_or(Fate::Elsewhere);
        Comment::Frame { index, of, fate }
    });
    let refused = fates.is_empty().then_some(Comment::Text("1rma device dropped it"));
    let news = news.iter().map(|&back| comment_of(back));
    blocks.packet(&packet, frames.chain(refused).chain(news));
}

const fn comment_of(back: bool) -> Comment<'static> {
    Comment::Text(if back { "1rma interface back" } else { "1rma interface gone" })
}

#[cfg(test)]
mod tests;
