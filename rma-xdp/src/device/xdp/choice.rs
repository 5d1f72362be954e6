//! In which mode the steering program runs where the configuration leaves that open, and why.
//!
//! A rule by the driver's name. A probe would need a peer that answers, would take time at each
//! start, and on a busy machine would now choose this and now that. The rule is about speed alone;
//! whether frames get through is seen later: see [`super::doubts`].

use super::config::{AttachMode, Mode};

/// Why the steering program runs in the mode that it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeReason {
    /// The configuration asks for it.
    AskedFor,
    /// The driver has XDP, and is not one that is faster without.
    InTheDriver,
    /// The driver is veth. It has XDP, but makes a packet from what an AF_XDP socket sends, and
    /// copies it again for its program; in generic mode that packet comes as it is.
    FasterOnVeth,
    /// Native mode would have been chosen and was refused, as a [`Fallback`](super::Fallback)
    /// tells.
    NativeRefused,
    /// Generic mode would have been chosen and was refused, as a [`Fallback`](super::Fallback)
    /// tells.
    GenericRefused,
    /// Generic mode had been chosen, and frames did not get to the sockets, which in native mode
    /// they do: packets of several datagrams (UDP GSO), or those that somebody redirects
    /// (`act_mirred`).
    GenericLostFrames,
}

impl core::fmt::Display for ModeReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::AskedFor => "as asked for",
            Self::InTheDriver => "the driver has XDP",
            Self::FasterOnVeth => "faster on veth",
            Self::NativeRefused => "native was refused",
            Self::GenericRefused => "generic was refused",
            Self::GenericLostFrames => "in generic mode frames were lost",
        })
    }
}

/// A mode to be tried, and why it runs if it is the one.
pub(super) type Candidate = (AttachMode, ModeReason);

/// The driver of veth interfaces, as it names itself.
const VETH: &str = "veth";

/// The modes to try on an interface with this driver, in this order. `generic_lost_frames`: they
/// are tried anew, as in generic mode frames were lost.
pub(super) fn candidates(
    wanted: Mode,
    driver: Option<&str>,
    generic_lost_frames: bool,
) -> &'static [Candidate] {
    use AttachMode::{Generic, Native};
    match wanted {
        Mode::Native => &[(Native, ModeReason::AskedFor)],
        Mode::Generic => &[(Generic, ModeReason::AskedFor)],
        Mode::Auto if driver != Some(VETH) => {
            &[(Native, ModeReason::InTheDriver), (Generic, ModeReason::NativeRefused)]
        }
        Mode::Auto if generic_lost_frames => {
            &[(Native, ModeReason::GenericLostFrames), (Generic, ModeReason::NativeRefused)]
        }
        Mode::Auto => &[(Generic, ModeReason::FasterOnVeth), (Native, ModeReason::GenericRefused)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_all_that_is_tried() {
        for driver in [None, Some("veth"), Some("virtio_net")] {
            for lost in [false, true] {
                let native = candidates(Mode::Native, driver, lost);
                assert_eq!(native, [(AttachMode::Native, ModeReason::AskedFor)]);
                let generic = candidates(Mode::Generic, driver, lost);
                assert_eq!(generic, [(AttachMode::Generic, ModeReason::AskedFor)]);
            }
        }
    }

    #[test]
    fn generic_is_first_on_veth_alone_and_only_until_it_loses_frames() {
        let first = |driver, lost| candidates(Mode::Auto, driver, lost)[0];
        assert_eq!(first(Some("veth"), false), (AttachMode::Generic, ModeReason::FasterOnVeth));
        assert_eq!(first(Some("veth"), true), (AttachMode::Native, ModeReason::GenericLostFrames));
        for driver in [None, Some("virtio_net"), Some("e1000e"), Some("bridge"), Some("veth2")] {
            assert_eq!(first(driver, false), (AttachMode::Native, ModeReason::InTheDriver));
        }
    }

    #[test]
    fn whatever_is_first_the_other_mode_is_second() {
        for driver in [None, Some("veth")] {
            for lost in [false, true] {
                let [(first, _), (second, _)] = candidates(Mode::Auto, driver, lost) else {
                    panic!("two candidates")
                };
                assert_ne!(first, second);
            }
        }
    }
}
