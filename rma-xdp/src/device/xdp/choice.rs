//! In which mode the steering program runs where the configuration leaves that open, whether with
//! zero-copy, and why.
//!
//! Rules by the driver's name. A probe would need a peer that answers, would take time at each
//! start, and on a busy machine would now choose this and now that. The rules are about speed,
//! about bonds, which are known not to deliver in native mode, and about zero-copy that is known to
//! lose frames; whether frames get through elsewhere is seen later: see [`super::doubts`].

use super::{
    broken::{Broken, Release},
    config::{AttachMode, Mode},
    error::{Refusal, XdpError},
};

/// The reason for the mode that the steering program runs in.
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
    OverPorts,
    /// The driver is veth, and the host has several engines. In generic mode frames come on other
    /// queues than they were sent on, so answers would come to other engines than asked.
    SeveralEngines,
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
            Self::OverPorts => "native mode receives nothing on a bond",
            Self::SeveralEngines => "several engines on veth",
            Self::NativeRefused => "native was refused",
            Self::GenericRefused => "generic was refused",
            Self::GenericLostFrames => "in generic mode frames were lost",
        })
    }
}

/// A mode to be tried, and why it runs if it is the one.
pub(super) type Candidate = (AttachMode, ModeReason);

/// The drivers of veth interfaces and of bonds, as they name themselves.
const VETH: &str = "veth";
const BOND: &str = "bonding";

/// The verdict on an interface's zero-copy mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ZeroCopy {
    /// Nothing speaks against it.
    #[default]
    Trusted,
    /// Nothing came back in it. Copy mode is tried, to see whether there it does.
    OnTrial,
    /// Frames got lost in it.
    Mute,
    /// Nothing came back in it, nor in copy mode: it is not to blame.
    Acquitted,
}

/// The modes to try on the interface, which has this driver, in this order. `native_on_veth`: the
/// reason why native mode is tried first on veth as well, if there is one.
pub(super) fn candidates(
    interface: &str,
    wanted: Mode,
    driver: Option<&str>,
    native_on_veth: Option<ModeReason>,
) -> Result<&'static [Candidate], XdpError> {
    use AttachMode::{Generic, Native};
    Ok(match wanted {
        Mode::Native | Mode::NativeCopy | Mode::NativeZeroCopy if driver == Some(BOND) => {
            return Err(XdpError::NativeOnBond { interface: interface.into() });
        }
        Mode::Native | Mode::NativeCopy | Mode::NativeZeroCopy => &[(Native, ModeReason::AskedFor)],
        Mode::Generic => &[(Generic, ModeReason::AskedFor)],
        Mode::Auto if driver == Some(BOND) => &[(Generic, ModeReason::OverPorts)],
        Mode::Auto if driver != Some(VETH) => {
            &[(Native, ModeReason::InTheDriver), (Generic, ModeReason::NativeRefused)]
        }
        Mode::Auto => match native_on_veth {
            None => &[(Generic, ModeReason::FasterOnVeth), (Native, ModeReason::GenericRefused)],
            Some(ModeReason::SeveralEngines) => {
                &[(Native, ModeReason::SeveralEngines), (Generic, ModeReason::NativeRefused)]
            }
            Some(_) => {
                &[(Native, ModeReason::GenericLostFrames), (Generic, ModeReason::NativeRefused)]
            }
        },
    })
}

/// Whether sockets are bound for zero-copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Zero-copy if the driver has it, else copy.
    Either,
    /// Copy, for this reason.
    Copy(Refusal),
    /// Zero-copy, or not at all.
    ZeroCopy,
}

/// Returns the way in which sockets are bound where the program is attached in mode `attached`.
pub(super) fn copying(
    wanted: Mode,
    attached: AttachMode,
    driver: Option<&str>,
    release: Release,
    found: ZeroCopy,
) -> Copying {
    match (attached, wanted) {
        // A driver's zero-copy queue would bypass the program.
        (AttachMode::Generic, _) => Copying::Copy(Refusal::GenericMode),
        (_, Mode::NativeCopy) => Copying::Copy(Refusal::Declined),
        (_, Mode::NativeZeroCopy) => Copying::ZeroCopy,
        _ if matches!(found, ZeroCopy::OnTrial | ZeroCopy::Mute) => Copying::Copy(Refusal::Mute),
        _ => {
            let broken = driver.and_then(|driver| Broken::of(driver, release));
            broken.map_or(Copying::Either, |it| Copying::Copy(Refusal::KnownBroken(it)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copying_of(wanted: Mode, driver: &str, release: &str, found: ZeroCopy) -> Copying {
        copying(wanted, AttachMode::Native, Some(driver), Release::of(release), found)
    }

    #[test]
    fn zero_copy_is_declined_where_it_is_known_to_be_broken_and_nowhere_else() {
        let is_declined = |driver, release| {
            let trusted = ZeroCopy::Trusted;
            let auto = copying_of(Mode::Auto, driver, release, trusted);
            assert_eq!(auto, copying_of(Mode::Native, driver, release, trusted));
            matches!(auto, Copying::Copy(Refusal::KnownBroken(_)))
        };
        for release in ["6.11.0", "6.18.15", "7.3.4", "9.0"] {
            assert!(is_declined("virtio_net", release));
        }
        for driver in ["igb", "igc"] {
            assert!(is_declined(driver, "6.14.1") && is_declined(driver, "6.19.14"));
            assert!(!is_declined(driver, "7.0.4") && !is_declined(driver, "7.3.4"));
        }
        assert!(!is_declined("ice", "6.18.15") && !is_declined("mlx5_core", "6.18.15"));
    }

    #[test]
    fn zero_copy_that_is_asked_for_or_declined_is_so_whatever_is_known_or_seen() {
        for found in [ZeroCopy::Trusted, ZeroCopy::Mute] {
            for driver in ["ice", "virtio_net"] {
                let asked = copying_of(Mode::NativeZeroCopy, driver, "6.18", found);
                assert_eq!(asked, Copying::ZeroCopy);
                let declined = copying_of(Mode::NativeCopy, driver, "6.18", found);
                assert_eq!(declined, Copying::Copy(Refusal::Declined));
            }
        }
    }

    #[test]
    fn zero_copy_is_not_taken_while_it_is_on_trial_or_once_it_was_mute() {
        let of = |found| copying_of(Mode::Auto, "ice", "6.18", found);
        assert_eq!(of(ZeroCopy::Trusted), Copying::Either);
        assert_eq!(of(ZeroCopy::OnTrial), Copying::Copy(Refusal::Mute));
        assert_eq!(of(ZeroCopy::Mute), Copying::Copy(Refusal::Mute));
        assert_eq!(of(ZeroCopy::Acquitted), Copying::Either);
    }

    /// The candidates where there are some.
    fn tried(
        wanted: Mode,
        driver: Option<&str>,
        native_on_veth: Option<ModeReason>,
    ) -> &'static [Candidate] {
        candidates("eth9", wanted, driver, native_on_veth).unwrap()
    }

    /// The reasons for native mode on veth.
    const WHY: [Option<ModeReason>; 3] =
        [None, Some(ModeReason::GenericLostFrames), Some(ModeReason::SeveralEngines)];

    #[test]
    fn only_the_requested_mode_is_tried() {
        for driver in [None, Some("veth"), Some("virtio_net"), Some("team")] {
            for why in WHY {
                for wanted in [Mode::Native, Mode::NativeCopy, Mode::NativeZeroCopy] {
                    let native = tried(wanted, driver, why);
                    assert_eq!(native, [(AttachMode::Native, ModeReason::AskedFor)]);
                }
                let generic = tried(Mode::Generic, driver, why);
                assert_eq!(generic, [(AttachMode::Generic, ModeReason::AskedFor)]);
            }
        }
    }

    #[test]
    fn generic_is_first_on_veth_alone_and_only_for_one_engine_until_it_loses_frames() {
        let first = |driver, why| tried(Mode::Auto, driver, why)[0];
        assert_eq!(first(Some("veth"), None), (AttachMode::Generic, ModeReason::FasterOnVeth));
        for why in WHY.into_iter().flatten() {
            assert_eq!(first(Some("veth"), Some(why)), (AttachMode::Native, why));
        }
        for driver in [None, Some("virtio_net"), Some("e1000e"), Some("bridge"), Some("veth2")] {
            for why in WHY {
                let native = (AttachMode::Native, ModeReason::InTheDriver);
                assert_eq!(first(driver, why), native);
            }
        }
    }

    #[test]
    fn whatever_is_first_the_other_mode_is_second() {
        for driver in [None, Some("veth")] {
            for why in WHY {
                let [(first, _), (second, _)] = tried(Mode::Auto, driver, why) else {
                    panic!("two candidates")
                };
                assert_ne!(first, second);
            }
        }
    }

    #[test]
    fn on_a_bond_native_mode_is_neither_chosen_nor_taken_for_an_answer() {
        for why in WHY {
            let generic = (AttachMode::Generic, ModeReason::OverPorts);
            assert_eq!(tried(Mode::Auto, Some("bonding"), why), [generic]);
            let asked_for = (AttachMode::Generic, ModeReason::AskedFor);
            assert_eq!(tried(Mode::Generic, Some("bonding"), why), [asked_for]);
            let error = candidates("bond0", Mode::Native, Some("bonding"), why).unwrap_err();
            assert!(error.to_string().contains("bond0 is a bond"), "{error}");
        }
    }
}
