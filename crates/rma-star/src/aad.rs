//! The octets that a frame's tag covers besides its payload.
//!
//! AAD = header ‖ *tail*. The header is as it lies in the frame. The tail is the high half of the
//! header's time, so that all 64 bits of it are authenticated while 32 travel; in RDA and GDA, the
//! IV of the RD or GD that they answer follows: a copy has an answer of its own.
//!
//! So both parts are as [`Sealing::push_joined`](rma_core::seal::Sealing::push_joined) takes them.

use rma_core::crypto::{IV_LEN, Iv};

use crate::{clock::ZTime, wire::HEADER_LEN_MAX};

/// Octets of the tail of a frame that answers nothing, or answers by what is in it.
pub const TAIL_LEN: usize = 4;

/// Octets of the tail of an RDA and a GDA.
pub const ANSWER_TAIL_LEN: usize = TAIL_LEN + IV_LEN;

/// The most octets of an AAD.
pub const AAD_LEN_MAX: usize = HEADER_LEN_MAX + ANSWER_TAIL_LEN;

/// The tail of a frame whose time is `time`.
//= star#ours-aad
#[must_use]
pub const fn tail(time: ZTime) -> [u8; TAIL_LEN] {
    time.high().to_be_bytes()
}

/// The tail of an RDA or GDA whose time is `time`, and that answers the RD or GD of IV `answers`.
//= star#ours-aad
#[must_use]
pub fn answer_tail(time: ZTime, answers: &Iv) -> [u8; ANSWER_TAIL_LEN] {
    let mut octets = [0; ANSWER_TAIL_LEN];
    octets[..TAIL_LEN].copy_from_slice(&tail(time));
    octets[TAIL_LEN..].copy_from_slice(answers.octets());
    octets
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::EngineId;

    use super::*;
    use crate::names::Side;

    //= star#ours-aad
    //= type=test
    #[test]
    fn tails_tell_times_and_answered_frames_apart() {
        let (now, wrapped) = (ZTime(0x1_0000_0005), ZTime(0x2_0000_0005));
        assert_eq!((now.low(), tail(now)), (wrapped.low(), [0, 0, 0, 1]));
        assert_eq!(tail(wrapped), [0, 0, 0, 2]);
        let iv = |counter| Iv::new(Side::Stateful.direction(), EngineId(1), counter);
        let expected = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(answer_tail(now, &iv(9)), expected);
        assert_ne!(answer_tail(now, &iv(9)), answer_tail(wrapped, &iv(9)));
        assert_ne!(answer_tail(now, &iv(9)), answer_tail(now, &iv(10)));
    }
}
