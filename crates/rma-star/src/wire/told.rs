//! The payloads of STATEs (ours; the paper says only that state is transferred).
//!
//! Initial state, of Z, 16 octets:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |               W, for how long frames are valid, microseconds  |
//! +-------------------------------+-------------------------------+
//! |      longest packet of Z      |           reserved            |
//! +-------------------------------+                               |
//! |                                                               |
//! |                                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! Close, of either, 16 octets of 0: what there is to tell is that it came, under its key.
//!
//! Ask, of F, 56 octets: the MR or MW, and 52 octets of 0. Rules, of Z, 48 octets:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                           MR or MW                            |
//! +---------------+-----------------------------------------------+
//! |    access     |                   reserved                    |
//! +---------------+-----------------------------------------------+
//! |                            length                             |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                  K_m of WRITEs, four words                    |
//! +---------------------------------------------------------------+
//! |                  K_m of READs, four words                     |
//! +---------------------------------------------------------------+
//! ```
//!
//! Access is 2 for WRITEs and 4 for READs, together 6. With 0 there is no such MR for this
//! connection: F knows no more of it than before. The key of what is not allowed is 0.

use crate::{
    error::Malformed,
    keys::{FrameKey, KEY_LEN},
    names::MrId,
    octets::{u16_at, u32_at, u64_at},
};

/// Octets of initial state.
pub const INITIAL_LEN: usize = 16;

/// Octets that say that a connection has ended.
pub const CLOSE_LEN: usize = 16;

/// Octets of a question for a rule: more than its answer has, so that who asks gets no more than he
/// sends (P10).
pub const ASK_LEN: usize = 56;

/// Octets of a rule.
pub const RULE_LEN: usize = 48;

const _: () = assert!(RULE_LEN < ASK_LEN, "an answer is shorter than what it answers");

/// The facts about Z that F must know before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    /// W: for how long frames to Z are valid at most, in microseconds. Never 0.
    pub valid_micros: u32,
    /// The longest packet that Z takes, in octets.
    pub packet_len_max: u16,
}

impl Initial {
    /// The octets of the payload.
    #[must_use]
    pub fn to_octets(&self) -> [u8; INITIAL_LEN] {
        let mut octets = [0; INITIAL_LEN];
        octets[..4].copy_from_slice(&self.valid_micros.to_be_bytes());
        octets[4..6].copy_from_slice(&self.packet_len_max.to_be_bytes());
        octets
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// If it has another length, or a field a value that is not defined.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let octets: &[u8; INITIAL_LEN] = whole(payload)?;
        let initial = Self { valid_micros: u32_at(octets, 0), packet_len_max: u16_at(octets, 4) };
        let defined = octets[6..] == [0; 10] && initial.valid_micros > 0;
        if defined { Ok(initial) } else { Err(Malformed::Field) }
    }
}

/// The payload of a question for the rule of an MR or MW.
#[must_use]
pub fn ask(mr: MrId) -> [u8; ASK_LEN] {
    let mut octets = [0; ASK_LEN];
    octets[..4].copy_from_slice(&mr.0.to_be_bytes());
    octets
}

/// Parses the MR or MW that is asked about.
///
/// # Errors
/// If the payload has another length, or says more.
pub fn asked(payload: &[u8]) -> Result<MrId, Malformed> {
    let octets: &[u8; ASK_LEN] = whole(payload)?;
    if octets[4..] == [0; ASK_LEN - 4] {
        Ok(MrId(u32_at(octets, 0)))
    } else {
        Err(Malformed::Field)
    }
}

/// The rights of F on an MR or MW of Z: a row of the paper's whitelist, with the keys that make it
/// so.
//= star#III-D1-rules
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The MR or MW.
    pub mr: MrId,
    /// How many octets it has.
    pub len: u64,
    /// K_m of F's WRITEs, if it may.
    pub write: Option<FrameKey>,
    /// K_m of F's READs, if it may.
    pub read: Option<FrameKey>,
}

impl Rule {
    const WRITE: u8 = 2;
    const READ: u8 = 4;

    /// The octets of the payload.
    #[must_use]
    pub fn to_octets(&self) -> [u8; RULE_LEN] {
        let mut octets = [0; RULE_LEN];
        octets[..4].copy_from_slice(&self.mr.0.to_be_bytes());
        octets[8..16].copy_from_slice(&self.len.to_be_bytes());
        for (key, bit, at) in [(self.write, Self::WRITE, 16), (self.read, Self::READ, 32)] {
            if let Some(key) = key {
                octets[4] |= bit;
                octets[at..at + KEY_LEN].copy_from_slice(key.expose());
            }
        }
        octets
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// If it has another length, or a field a value that is not defined.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let octets: &[u8; RULE_LEN] = whole(payload)?;
        let access = octets[4];
        let key = |bit: u8, at: usize| -> Result<Option<FrameKey>, Malformed> {
            let mut key = [0; KEY_LEN];
            key.copy_from_slice(&octets[at..at + KEY_LEN]);
            match (access & bit != 0, key == [0; KEY_LEN]) {
                (true, _) => Ok(Some(FrameKey::from_bytes(key))),
                (false, true) => Ok(None),
                (false, false) => Err(Malformed::Field),
            }
        };
        let rule = Self {
            mr: MrId(u32_at(octets, 0)),
            len: u64_at(octets, 8),
            write: key(Self::WRITE, 16)?,
            read: key(Self::READ, 32)?,
        };
        let defined = access & !(Self::WRITE | Self::READ) == 0 && octets[5..8] == [0; 3];
        if defined { Ok(rule) } else { Err(Malformed::Field) }
    }
}

/// The payload, if it is so long.
fn whole<const LEN: usize>(payload: &[u8]) -> Result<&[u8; LEN], Malformed> {
    payload.try_into().map_err(|_other_len| Malformed::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Option<FrameKey>> {
        any::<Option<[u8; 16]>>().prop_map(|key| key.map(FrameKey::from_bytes))
    }

    proptest! {
        #[test]
        fn payloads_say_what_was_put_into_them(
            (mr, len, write, read) in (any::<u32>(), any::<u64>(), key(), key()),
            (valid_micros, packet_len_max) in (1_u32.., any::<u16>()),
        ) {
            let rule = Rule { mr: MrId(mr), len, write, read };
            prop_assert_eq!(Rule::parse(&rule.to_octets()), Ok(rule));
            let initial = Initial { valid_micros, packet_len_max };
            prop_assert_eq!(Initial::parse(&initial.to_octets()), Ok(initial));
            prop_assert_eq!(asked(&ask(MrId(mr))), Ok(MrId(mr)));
        }

        #[test]
        fn any_octets_are_a_payload_or_an_error(
            octets in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(rule) = Rule::parse(&octets) {
                prop_assert_eq!(&rule.to_octets()[..], &octets);
            }
            if let Ok(initial) = Initial::parse(&octets) {
                prop_assert_eq!(&initial.to_octets()[..], &octets);
            }
            if let Ok(mr) = asked(&octets) {
                prop_assert_eq!(&ask(mr)[..], &octets);
            }
        }
    }
}
