//! Payloads of STATE frames by which two sides change roles (ours; the paper leaves it to the
//! future, §III-E2). Numbers are big-endian.
//!
//! | kind | from | octets |
//! |---|---|---|
//! | switch | F asks | 24: number (2), whether it is automatic (1), 21 of 0 |
//! | switch | Z agrees | 16: number (2), 14 of 0 |
//! | transfer | F | 56: the [`Handover`] |
//! | commit | F of the era that begins | 16, as Z's switch |
//! | abort | Z | 16, as its switch |
//!
//! The number of a switch is that of the era that it begins.

use crate::{
    error::Malformed,
    handover::{HANDOVER_LEN, Handover},
    names::Era,
    octets::u16_at,
};

/// Octets of a question for a switch: more than an answer has (P10).
pub const SWITCH_LEN: usize = 24;

/// Octets of what only names a switch.
pub const NAMED_LEN: usize = 16;

const _: () = assert!(NAMED_LEN < SWITCH_LEN, "an answer is shorter than what it answers");

/// F asks whether roles may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The number: above that of every switch that was tried before.
    pub number: Era,
    /// F has too many connections, and nobody has asked for this one: Z may think otherwise.
    pub is_automatic: bool,
}

impl Switch {
    /// The octets of the payload.
    #[must_use]
    pub fn to_octets(self) -> [u8; SWITCH_LEN] {
        let mut octets = [0; SWITCH_LEN];
        octets[..2].copy_from_slice(&self.number.0.to_be_bytes());
        octets[2] = self.is_automatic.into();
        octets
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// If it has another length, or a field a value that is not defined.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let octets: &[u8; SWITCH_LEN] = payload.try_into().map_err(|_len| Malformed::Length)?;
        let switch = Self { number: Era(u16_at(octets, 0)), is_automatic: octets[2] == 1 };
        if octets[2] <= 1 && octets[3..] == [0; SWITCH_LEN - 3] {
            Ok(switch)
        } else {
            Err(Malformed::Field)
        }
    }
}

/// The payload of what only names a switch.
#[must_use]
pub fn named(number: Era) -> [u8; NAMED_LEN] {
    let mut octets = [0; NAMED_LEN];
    octets[..2].copy_from_slice(&number.0.to_be_bytes());
    octets
}

/// Parses the era of the switch that is named.
///
/// # Errors
/// If the payload has another length, or says more.
pub fn name(payload: &[u8]) -> Result<Era, Malformed> {
    let octets: &[u8; NAMED_LEN] = payload.try_into().map_err(|_len| Malformed::Length)?;
    if octets[2..] == [0; NAMED_LEN - 2] {
        Ok(Era(u16_at(octets, 0)))
    } else {
        Err(Malformed::Field)
    }
}

/// Parses a transfer.
///
/// # Errors
/// If it has another length, or frames would never be valid.
pub fn handover(payload: &[u8]) -> Result<Handover, Malformed> {
    let octets: &[u8; HANDOVER_LEN] = payload.try_into().map_err(|_len| Malformed::Length)?;
    let handover = Handover::from_octets(octets);
    if handover.valid_micros > 0 { Ok(handover) } else { Err(Malformed::Field) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn payloads_say_what_was_put_into_them(number: u16, is_automatic: bool) {
            let switch = Switch { number: Era(number), is_automatic };
            prop_assert_eq!(Switch::parse(&switch.to_octets()), Ok(switch));
            prop_assert_eq!(name(&named(Era(number))), Ok(Era(number)));
        }

        #[test]
        fn any_octets_are_a_payload_or_an_error(
            octets in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..60),
        ) {
            if let Ok(switch) = Switch::parse(&octets) {
                prop_assert_eq!(&switch.to_octets()[..], &octets);
            }
            if let Ok(number) = name(&octets) {
                prop_assert_eq!(&named(number)[..], &octets);
            }
            if let Ok(told) = handover(&octets) {
                prop_assert_eq!(&told.to_octets()[..], &octets);
            }
        }
    }
}
