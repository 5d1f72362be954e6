//! Where an engine's message counter gets its values from, so that no (key, IV) pair is used twice (P4).
//!
//! A host counts in *blocks*. Before it uses a block it writes durably, in a file that all who use the
//! state directory share, that the block is gone: the *high-water mark*, the first value that nobody has
//! ever reserved. So blocks are disjoint across engines, processes and network namespaces, and across
//! restarts, crashes and steps of the clock. A block also begins no lower than the wall clock in
//! nanoseconds: that is the second line, for a state directory that was lost.
//!
//! `store` reserves, `keeper` does so ahead of need on a thread of its own. Nothing here runs on an engine's thread
//! but [`BlockSupply::turn`].
//!
//! Not covered, because no file can: two state directories that serve one host address (two users, a
//! directory restored from a copy, an address that moves to another machine) are kept apart by the wall
//! clock alone, and a virtual machine that is set back to a snapshot while its hosts run goes on with the
//! values that it had then.
//!
//! Invariant: a value leaves this module only after a mark above it is durable; unless there is no usable
//! state directory, which [`CounterSource`] says.

mod error;
mod keeper;
mod store;
#[cfg(test)]
mod tests;

use core::fmt;
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use rma_core::crypto::CounterBlock;

use crate::clock::wall_clock_nanos;
pub use error::CounterError;
pub(crate) use keeper::BlockSupply;
use keeper::Keeper;
use store::Store;

/// How a host gets the values of its message counter.
#[derive(Clone, Debug)]
#[must_use]
pub struct CounterConfig {
    /// The directory with the high-water mark, made if it is not there. All hosts that ever have one
    /// address must share one directory; hosts with different addresses may. It must be on a local disk and
    /// survive reboots.
    ///
    /// `None`: `/var/lib/1rma` for root, otherwise `$XDG_STATE_HOME/1rma` or `~/.local/state/1rma`; and where that
    /// cannot be written, the wall clock alone, which is reported ([`crate::Host::fallbacks`]). A directory that is
    /// named here must be usable. Default: `None`.
    pub state_dir: Option<PathBuf>,
    /// How many values are reserved at once. Larger: a host whose disk fails goes on for longer. Smaller:
    /// hosts that are opened often leave the wall clock behind less, by a nanosecond for each value that
    /// they did not use, which matters once the state directory is lost. Default: 2^34, 17 s of values,
    /// which last for an hour at five million frames a second.
    pub block_len: u64,
    /// The wall clock in nanoseconds since 1970; `None` if it cannot be told. Only tests have a reason to
    /// set it.
    pub wall_clock: fn() -> Option<u64>,
}

impl Default for CounterConfig {
    fn default() -> Self {
        Self { state_dir: None, block_len: 1 << 34, wall_clock: wall_clock_nanos }
    }
}

/// Where a host's counter values come from, for people and for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterSource {
    /// From blocks that are reserved in a file.
    File(PathBuf),
    /// From the wall clock, which must not be set back across a restart.
    WallClock {
        /// Why no file could be used.
        reason: Box<str>,
    },
}

impl fmt::Display for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "counter blocks reserved in {}", path.display()),
            Self::WallClock { reason } => {
                write!(f, "the wall clock instead of reserved counter blocks: {reason}")
            }
        }
    }
}

/// A host's source of counter values. Dropped, it reserves no more.
#[derive(Debug)]
pub(crate) struct Counter {
    source: CounterSource,
    keeper: Option<Keeper>,
}

impl Counter {
    /// Reserves the first block, of values not below `floor`, and starts to look after the next ones.
    pub(crate) fn open(
        config: CounterConfig,
        floor: u64,
    ) -> Result<(Self, CounterBlock), CounterError> {
        let CounterConfig { state_dir, block_len, wall_clock } = config;
        let named = state_dir.is_some();
        let dir = state_dir.map_or_else(default_dir, Ok);
        Self::open_in(dir, named, WallClock(wall_clock), block_len, floor)
    }

    fn open_in(
        dir: Result<PathBuf, CounterError>,
        named: bool,
        clock: WallClock,
        block_len: u64,
        floor: u64,
    ) -> Result<(Self, CounterBlock), CounterError> {
        let opened = dir
            .and_then(|dir| Store::open(dir, clock, block_len))
            .and_then(|store| Ok((store.reserve(floor)?, store)));
        let (store, block) = match opened {
            Ok((block, store)) => (store, block),
            Err(reason) if !named && reason.nothing_is_known() => {
                let source = CounterSource::WallClock { reason: reason.to_string().into() };
                let first = clock.floor(floor).ok_or(CounterError::NoClock)?;
                let block = CounterBlock::new(first, u64::MAX);
                return Ok((Self { source, keeper: None }, block));
            }
            Err(error) => return Err(error),
        };
        let source = CounterSource::File(store.mark().to_owned());
        Ok((Self { source, keeper: Some(Keeper::start(store)?) }, block))
    }

    /// Where values come from.
    pub(crate) const fn source(&self) -> &CounterSource {
        &self.source
    }

    /// The engine's end.
    pub(crate) fn supply(&self) -> BlockSupply {
        self.keeper.as_ref().map_or_else(BlockSupply::none, Keeper::supply)
    }

    /// What is not as it should be.
    pub(crate) fn fallback(&self) -> Option<String> {
        match &self.source {
            source @ CounterSource::WallClock { .. } => Some(source.to_string()),
            CounterSource::File(_) => self.keeper.as_ref()?.trouble(),
        }
    }
}

/// The wall clock, believed only where it can be right: not near 1970, where a machine without a clock
/// battery begins each time anew, and not so far on that the counter would come near its end.
#[derive(Clone, Copy, Debug)]
struct WallClock(fn() -> Option<u64>);

impl WallClock {
    /// The beginning of 2025.
    const EARLIEST: u64 = 1_735_689_600_000_000_000;
    /// The year 2262.
    const LATEST: u64 = 1 << 63;

    fn now(self) -> Option<u64> {
        (self.0)().filter(|now| (Self::EARLIEST..Self::LATEST).contains(now))
    }

    /// The lowest value that a counter may begin with, as far as the clock and `floor` can tell. A `floor`
    /// above zero was chosen by somebody, and is enough.
    fn floor(self, floor: u64) -> Option<u64> {
        self.now().max((floor > 0).then_some(floor))
    }
}

fn default_dir() -> Result<PathBuf, CounterError> {
    let root = rustix::process::geteuid().is_root();
    state_dir(root, env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
}

/// The place that the XDG base directory specification gives to state; for root, the one that FHS does.
/// Relative paths do not count.
fn state_dir(
    root: bool,
    xdg: Option<OsString>,
    home: Option<OsString>,
) -> Result<PathBuf, CounterError> {
    if root {
        return Ok("/var/lib/1rma".into());
    }
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = |home: PathBuf| home.join(Path::new(".local/state"));
    absolute(xdg)
        .or_else(|| absolute(home).map(of_home))
        .map(|state| state.join("1rma"))
        .ok_or(CounterError::NoDirectory)
}
