//! The source of an engine's message counter, so that no (key, IV) pair is used twice (P4).
//!
//! A host counts in *blocks*. Before it uses a block it writes durably, in a file that all who use
//! the state directory share, that the block is gone: the *high-water mark*, the first value that
//! nobody has ever reserved. So blocks are disjoint across engines, processes and network
//! namespaces, and across restarts, crashes and steps of the clock. A host's first block also
//! begins no lower than the wall clock in nanoseconds: that is the second line, for a state
//! directory that was lost.
//!
//! The second line holds if the clock is right and past every value that was used. A host uses
//! values far more slowly than the clock goes on, so that is so unless a block begins ahead of the
//! clock. A first block begins at the mark at the lowest, so the mark must not be ahead: the first
//! block of a host is short, and later ones end with the clock ([`rma_core::counter_mark`]). Then a
//! mark that is lost under a right clock repeats nothing, if hosts that share a directory are not
//! opened more often than seven times a second for long, and send less than a frame in six
//! nanoseconds together. Where a mark is ahead nevertheless, by a clock that was ahead or by a
//! burst of hosts, [`IvBlocks::fallback`] says so and until when.
//!
//! `store` reserves in a directory, `keeper` does so ahead of need on a thread of its own. Nothing
//! here runs on an engine's thread but [`BlockSupply::turn`].
//!
//! Not covered, because no file can: two state directories that serve one host address (two users,
//! a directory restored from a copy, an address that moves to another machine) are kept apart by
//! the wall clock alone, and a virtual machine that is set back to a snapshot while its hosts run
//! goes on with the values that it had then.
//!
//! Invariant: a value leaves this module only after a mark above it is durable; unless there is no
//! state directory and none can be made, which [`CounterSource`] says.

mod error;
mod keeper;
mod store;
mod wall_clock;
rma_core::settings!(CounterConfig);

#[cfg(test)]
mod tests;

use core::{fmt, time::Duration};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use rma_core::crypto::CounterBlock;
use rustix::fs::{Access, AtFlags, CWD, accessat};

pub use error::CounterError;
use error::Moment;
pub(crate) use keeper::BlockSupply;
use keeper::Keeper;
use store::{FIRST_LEN, Store};
use wall_clock::{WallClock, wall_clock_nanos};

/// The way in which a host gets the values of its message counter.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct CounterConfig {
    /// The directory with the high-water mark, made if it is not there. All hosts that ever have
    /// one address must share one directory; hosts with different addresses may. It must be on a
    /// local disk and survive reboots.
    ///
    /// `None`: `/var/lib/1rma` for root, for all hosts over AF_XDP, whoever runs them, and for
    /// everybody who may write there; otherwise `$XDG_STATE_HOME/1rma` or `~/.local/state/1rma`.
    /// Where that is not there and cannot be made, or none is known: the wall clock alone, which is
    /// reported ([`crate::Host::fallbacks`]); but for a host over AF_XDP that is not root's this is
    /// an error, as root's hosts have the same address: `sudo install -d -m 700 -o USER
    /// /var/lib/1rma` makes the directory for a user, and `sudo chown -R USER /var/lib/1rma` gives
    /// him one that root has used; root goes on using it. A directory that is there may have a
    /// mark, so it must be usable, as must one that is named here; a read-only one is not. Default:
    /// `None`.
    ///
    /// To change to another directory, or to begin anew when the mark is lost, is safe if the
    /// system clock is past every value that was ever reserved, in nanoseconds since 1970. That is
    /// so if the clock was never ahead of what it is now, and [`crate::Host::fallbacks`] never said
    /// otherwise. If in doubt, one of two things makes it safe: open the first host with
    /// `nic.counter_start` above all these values (what the mark says, or a day after any time that
    /// the clock has shown); or give new keys to all regions that the hosts of this address serve
    /// or have grants for ([`crate::Host::rekey`]), which makes what was sealed under the old ones
    /// harmless.
    pub state_dir: Option<PathBuf>,
    /// How many values are reserved at once, at most. A host's first block has 2^27 at most, and
    /// later ones what the wall clock has passed since the mark, if that is less. Larger: a host
    /// whose disk fails goes on for longer. Default: 2^34, which last for an hour at five million
    /// frames a second.
    pub block_len: u64,
    /// The wall clock in nanoseconds since 1970; `None` if it cannot be told. Only tests have a
    /// reason to set it.
    pub wall_clock: fn() -> Option<u64>,
}

impl Default for CounterConfig {
    fn default() -> Self {
        Self { state_dir: None, block_len: 1 << 34, wall_clock: wall_clock_nanos }
    }
}

/// The source of a host's counter values, for people and for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterSource {
    /// From blocks that are reserved in a file.
    File(PathBuf),
    /// From the wall clock at the time of opening, which must not be set back across a restart.
    WallClock {
        /// The reason why no file could be used.
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

/// The user whose process counts, as far as the place of the mark depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    root: bool,
    /// The host is the machine's: it has an interface for itself, whoever runs it.
    machine: bool,
}

impl User {
    /// This process, with a host that is the machine's or its own.
    pub(crate) fn this(machine: bool) -> Self {
        Self { root: rustix::process::geteuid().is_root(), machine }
    }
}

/// An engine's reservation of counter values: all that is ever reserved for it. Dropped, it no
/// longer reserves.
#[derive(Debug)]
pub(crate) struct IvBlocks {
    source: CounterSource,
    /// Ends before anything else goes.
    keeper: Option<Keeper>,
    clock: WallClock,
    /// The first value.
    first: u64,
    /// How far ahead of the clock that may be without a word.
    margin: u64,
}

impl IvBlocks {
    /// Reserves the first block, of values not below `floor`, and starts to look after the next
    /// ones.
    pub(crate) fn open(
        config: CounterConfig,
        floor: u64,
        user: User,
    ) -> Result<(Self, CounterBlock), CounterError> {
        let CounterConfig { state_dir, block_len, wall_clock } = config;
        // Root's hosts would not know what the wall clock alone was trusted with.
        let named = state_dir.is_some() || user == User { root: false, machine: true };
        let dir = state_dir.map_or_else(|| default_dir(user), Ok);
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
        let (source, keeper, block) = match opened {
            Ok((block, store)) => {
                let source = CounterSource::File(store.mark().to_owned());
                (source, Some(Keeper::start(store, block.end())?), block)
            }
            Err(reason) if !named && reason.no_directory() => {
                let reason = reason.to_string().into_boxed_str();
                let block = by_the_clock(clock, floor, &reason)?;
                (CounterSource::WallClock { reason }, None, block)
            }
            Err(error) => return Err(error),
        };
        tracing::debug!(first = block.first(), end = block.end(), "first counter block reserved");
        let margin = block_len.max(FIRST_LEN);
        Ok((Self { source, keeper, clock, first: block.first(), margin }, block))
    }

    /// Returns the source of the values.
    pub(crate) const fn source(&self) -> &CounterSource {
        &self.source
    }

    /// The engine's end.
    pub(crate) fn supply(&self) -> BlockSupply {
        self.keeper.as_ref().map_or_else(BlockSupply::none, Keeper::supply)
    }

    /// Returns the shortcoming of the source, if there is one.
    pub(crate) fn fallback(&self) -> Option<String> {
        match &self.source {
            source @ CounterSource::WallClock { .. } => Some(source.to_string()),
            CounterSource::File(path) => {
                self.keeper.as_ref()?.trouble().or_else(|| self.no_second_line(path))
            }
        }
    }

    /// Says that the clock could not stand in for the mark.
    fn no_second_line(&self, mark: &Path) -> Option<String> {
        let (mark, first) = (mark.display(), self.first);
        let Some(now) = self.clock.now() else {
            return Some(format!(
                "the message counter's mark alone, instead of the mark and the wall clock: the system clock is not \
                 set; were {mark} lost, IVs could repeat"
            ));
        };
        let ahead = first.saturating_sub(now);
        (ahead > self.margin).then(|| {
            let (ahead, until) = (Duration::from_nanos(ahead).as_secs(), Moment(first));
            format!(
                "the message counter's mark alone, instead of the mark and the wall clock, until {until}: this host \
                 counts from {first}, {ahead} s ahead of the system clock; see that the clock is right; were {mark} \
                 lost before then, IVs could repeat"
            )
        })
    }
}

/// Values from the clock's on, where there is no directory for `reason`.
fn by_the_clock(clock: WallClock, floor: u64, reason: &str) -> Result<CounterBlock, CounterError> {
    match clock.now() {
        Some(now) if floor <= now => Ok(CounterBlock::new(now, u64::MAX)),
        None if floor == 0 => Err(CounterError::NoClock),
        // The next start would have the same one.
        _ => Err(CounterError::StartNotKept { start: floor, reason: reason.into() }),
    }
}

/// The folder for the mark of a machine's hosts, as FHS has it.
/// The state directory of hosts over AF_XDP, and of root.
pub const STATE_DIR: &str = "/var/lib/1rma";

fn default_dir(user: User) -> Result<PathBuf, CounterError> {
    let (all, effective) = (Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    let is_usable = accessat(CWD, STATE_DIR, all, effective).is_ok();
    state_dir(user, is_usable, env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
}

/// One place for all who may have one host's address, where that can be: the machine's. Otherwise
/// the place that the XDG base directory specification gives to state. Relative paths do not count.
fn state_dir(
    user: User,
    is_usable: bool,
    xdg: Option<OsString>,
    home: Option<OsString>,
) -> Result<PathBuf, CounterError> {
    if user.root || user.machine || is_usable {
        return Ok(STATE_DIR.into());
    }
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = |home: PathBuf| home.join(Path::new(".local/state"));
    absolute(xdg)
        .or_else(|| absolute(home).map(of_home))
        .map(|state| state.join("1rma"))
        .ok_or(CounterError::NoDirectory)
}
