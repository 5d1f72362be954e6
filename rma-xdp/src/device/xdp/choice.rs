//! In which mode the steering program runs where the configuration leaves that open, and why.
//!
//! A rule by the driver's name. A probe would need a peer that answers, would take time at each
//! start, and on a busy machine would now choose this and now that. The rule is about speed, and
//! about bonds, which are known not to deliver in native mode; whether frames get through elsewhere
//! is seen later: see [`super::doubts`].

use super::{
    config::{AttachMode, Mode},
    error::XdpError,
};

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
    /// The driver is that of bonds. It has XDP, but the program then runs on the bond's ports, and
    /// what it redirects there to a socket of the bond the kernel drops. In generic mode the frames
    /// are the bond's when they come to the program.
    NativeIsDeafOnBonds,
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
            Self::NativeIsDeafOnBonds => "native mode receives nothing on a bond",
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

/// The driver of bonds, and that of teams, which are the same without XDP.
const BOND: &str = "bonding";
const TEAM: &str = "team";

/// Whether what comes in on an interface with this driver was received by others, its ports: then
/// it has the number of that port's receive queue, and so all that there may be count.
pub(super) fn has_ports(driver: Option<&str>) -> bool {
    matches!(driver, Some(BOND | TEAM))
}

/// The modes to try on the interface, which has this driver, in this order. `generic_lost_frames`:
/// they are tried anew, as in generic mode frames were lost.
pub(super) fn candidates(
    interface: &str,
    wanted: Mode,
    driver: Option<&str>,
    generic_lost_frames: bool,
) -> Result<&'static [Candidate], XdpError> {
    use AttachMode::{Generic, Native};
    Ok(match wanted {
        Mode::Native if driver == Some(BOND) => {
            return Err(XdpError::NativeOnBond { interface: interface.into() });
        }
        Mode::Native => &[(Native, ModeReason::AskedFor)],
        Mode::Generic => &[(Generic, ModeReason::AskedFor)],
        Mode::Auto if driver == Some(BOND) => &[(Generic, ModeReason::NativeIsDeafOnBonds)],
        Mode::Auto if driver != Some(VETH) => {
            &[(Native, ModeReason::InTheDriver), (Generic, ModeReason::NativeRefused)]
        }
        Mode::Auto if generic_lost_frames => {
            &[(Native, ModeReason::GenericLostFrames), (Generic, ModeReason::NativeRefused)]
        }
        Mode::Auto => &[(Generic, ModeReason::FasterOnVeth), (Native, ModeReason::GenericRefused)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The candidates where there are some.
    fn tried(wanted: Mode, driver: Option<&str>, lost: bool) -> &'static [Candidate] {
        candidates("eth9", wanted, driver, lost).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_all_that_is_tried() {
        for driver in [None, Some("veth"), Some("virtio_net"), Some("team")] {
            for lost in [false, true] {
                let native = tried(Mode::Native, driver, lost);
                assert_eq!(native, [(AttachMode::Native, ModeReason::AskedFor)]);
                let generic = tried(Mode::Generic, driver, lost);
                assert_eq!(generic, [(AttachMode::Generic, ModeReason::AskedFor)]);
            }
        }
    }

    #[test]
    fn generic_is_first_on_veth_alone_and_only_until_it_loses_frames() {
        let first = |driver, lost| tried(Mode::Auto, driver, lost)[0];
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
                let [(first, _), (second, _)] = tried(Mode::Auto, driver, lost) else {
                    panic!("two candidates")
                };
                assert_ne!(first, second);
            }
        }
    }

    #[test]
    fn on_a_bond_native_mode_is_neither_chosen_nor_taken_for_an_answer() {
        for lost in [false, true] {
            let generic = (AttachMode::Generic, ModeReason::NativeIsDeafOnBonds);
            assert_eq!(tried(Mode::Auto, Some("bonding"), lost), [generic]);
            let asked_for = (AttachMode::Generic, ModeReason::AskedFor);
            assert_eq!(tried(Mode::Generic, Some("bonding"), lost), [asked_for]);
            let error = candidates("bond0", Mode::Native, Some("bonding"), lost).unwrap_err();
            assert!(error.to_string().contains("bond0 is a bond"), "{error}");
        }
        assert!(has_ports(Some("bonding")) && has_ports(Some("team")));
        assert!(!has_ports(None) && !has_ports(Some("bridge")));
    }
}
