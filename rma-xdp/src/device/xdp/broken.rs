//! Drivers whose zero-copy is known to lose all frames, and with which releases of Linux. The
//! kernel itself tells nothing of it.

/// A release of Linux, as far as rules go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The first number.
    pub major: u32,
    /// The second one.
    pub minor: u32,
}

impl Release {
    /// The running kernel's. Zeros if it has no numbers.
    pub(super) fn running() -> Self {
        Self::of(&rustix::system::uname().release().to_string_lossy())
    }

    /// Reads the first two numbers of a release's name. Zeros if it has none.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|it| it.parse().ok());
        let mut next = || numbers.next().flatten().unwrap_or_default();
        Self { major: next(), minor: next() }
    }
}

impl core::fmt::Display for Release {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A driver whose zero-copy is known to lose all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// As it names itself.
    pub driver: &'static str,
    /// The first Linux with which it does not.
    pub mended: Option<Release>,
}

impl Broken {
    /// Returns the known fault of a driver, with this release.
    #[must_use]
    pub fn of(driver: &str, release: Release) -> Option<Self> {
        let is_broken =
            |it: &Self| it.driver == driver && it.mended.is_none_or(|mended| release < mended);
        BROKEN.into_iter().find(is_broken)
    }
}

/// The drivers whose zero-copy is not taken unless it is asked for. docs/decisions/paths.md says
/// how it was seen.
const BROKEN: [Broken; 3] = [
    // The header of each packet that is sent lies in the module's own data, and its address is
    // taken for one of the kernel's image (`xsk_hdr` in
    // https://github.com/torvalds/linux/blob/v6.18/drivers/net/virtio_net.c).
    Broken { driver: "virtio_net", mended: None },
    // With receive and transmit interrupts apart, the wake-up of an empty fill ring goes to the
    // wrong one (`igb_xsk_wakeup` in
    // https://github.com/torvalds/linux/blob/v6.18/drivers/net/ethernet/intel/igb/igb_xsk.c, and
    // its twin in igc).
    Broken { driver: "igb", mended: Some(Release { major: 7, minor: 0 }) },
    Broken { driver: "igc", mended: Some(Release { major: 7, minor: 0 }) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_whatever_a_distribution_adds() {
        let of = |text| (Release::of(text).major, Release::of(text).minor);
        assert_eq!(of("6.18.15+deb13-cloud-amd64"), (6, 18));
        assert_eq!(of("7.0-rc3"), (7, 0));
        assert_eq!(of("7"), (7, 0));
        assert_eq!(of("unknown"), (0, 0));
        assert!(Release::of("6.19.14") < Release::of("7.0.4"));
        assert!(Release::of("6.9") < Release::of("6.18"));
    }
}
