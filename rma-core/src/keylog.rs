//! Keys told to whoever is to decrypt captures of this process's frames: only in builds with the
//! feature `keylog`, and only once `start` has been called. In others all of this is nothing.
//!
//! A key is told where it is derived for a grant, where a grant comes in, and where a region gets
//! it: on no path of frames. The lines are those of `docs/RMA-BENCH.md`.

use core::fmt;

use crate::{addr::LocalAddresses, crypto::RegionKey, region::RegionId};

/// The key log of this process.
#[cfg(feature = "keylog")]
static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();

/// The way of lines to a key log.
#[cfg(feature = "keylog")]
pub struct Log {
    /// Takes a line, without its end. Called by any thread, engines among them.
    pub write: Box<dyn Fn(fmt::Arguments<'_>) + Send + Sync>,
    /// Whether keys of regions, K_r, are told as well: all keys of all initiators follow from them.
    pub regions: bool,
}

#[cfg(feature = "keylog")]
impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log(with regions: {})", self.regions)
    }
}

/// Begins to tell keys.
///
/// # Errors
/// The log comes back if there is one already.
#[cfg(feature = "keylog")]
pub fn start(log: Log) -> Result<(), Log> {
    LOG.set(log)
}

/// Tells a line.
#[cfg_attr(not(feature = "keylog"), expect(unused_variables, reason = "nothing is told"))]
#[inline]
pub fn line(line: fmt::Arguments<'_>) {
    #[cfg(feature = "keylog")]
    if let Some(log) = LOG.get() {
        (log.write)(line);
    }
}

/// Tells the K_r that a region of the host with these addresses has from now on.
#[cfg_attr(not(feature = "keylog"), expect(unused_variables, reason = "nothing is told"))]
#[inline]
pub(crate) fn installed(responders: LocalAddresses, region: RegionId, key: &RegionKey) {
    #[cfg(feature = "keylog")]
    if LOG.get().is_some_and(|it| it.regions) {
        for responder in responders.iter() {
            let (region, key) = (region.to_bits(), Hex(key.expose()));
            line(format_args!("1RMA_KR {responder} {region} {key}"));
        }
    }
}

/// A key as a line has it.
#[derive(Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8; 16]);

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hex(secret)")
    }
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
