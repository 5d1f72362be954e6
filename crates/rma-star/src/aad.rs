//! What a frame's tag covers besides its payload.
//!
//! AAD = header ‖ the high half of the header's time ‖ what the frame answers. The header is as it
//! lies in the frame; so its time is authenticated with all its 64 bits, of which 32 travel. What
//! it answers is nothing, or the IV of the RD or GD that an RDA or GDA answers: a copy has an
//! answer of its own.
//!
//! A REFUSAL has no time and answers by tag: header ‖ the tag of the refused frame.

use rma_core::{
    crypto::{IV_LEN, Iv},
    limits::TAG_LEN,
};

use crate::{clock::ZTime, wire::HEADER_LEN_MAX};

/// Octets of the longest AAD: no frame with the longest header answers.
const AAD_MAX: usize = HEADER_LEN_MAX + 4 + IV_LEN;

/// The octets that AES-GCM authenticates and does not encrypt.
#[derive(Clone, Copy, Debug)]
pub struct Aad {
    octets: [u8; AAD_MAX],
    len: usize,
}

impl Aad {
    /// Of a frame with this header, whose time is `time`.
    ///
    /// # Panics
    /// If `header` is longer than [`HEADER_LEN_MAX`].
    //= star#ours-aad
    #[must_use]
    pub fn new(header: &[u8], time: ZTime) -> Self {
        Self::of(&[header, &time.high().to_be_bytes()])
    }

    /// Of an RDA or GDA with this header, that answers the RD or GD of IV `answers`.
    ///
    /// # Panics
    /// If `header` is longer than [`HEADER_LEN_MAX`].
    //= star#ours-aad
    #[must_use]
    pub fn of_answer(header: &[u8], time: ZTime, answers: &Iv) -> Self {
        Self::of(&[header, &time.high().to_be_bytes(), answers.octets()])
    }

    /// Of a REFUSAL with this header, of the frame with tag `refused`.
    ///
    /// # Panics
    /// If `header` is longer than [`HEADER_LEN_MAX`].
    #[must_use]
    pub fn of_refusal(header: &[u8], refused: &[u8; TAG_LEN]) -> Self {
        Self::of(&[header, refused])
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut aad = Self { octets: [0; AAD_MAX], len: 0 };
        for part in parts {
            aad.octets[aad.len..aad.len + part.len()].copy_from_slice(part);
            aad.len += part.len();
        }
        aad
    }

    /// The octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::EngineId;

    use super::*;
    use crate::names::Side;

    //= star#ours-aad
    //= type=test
    #[test]
    fn the_aad_covers_header_time_and_what_is_answered() {
        let header = [7; 52];
        let (now, wrapped) = (ZTime(0x1_0000_0005), ZTime(0x2_0000_0005));
        let iv = |counter| Iv::new(Side::Stateful.direction(), EngineId(1), counter);
        let all = [
            Aad::new(&header, now),
            Aad::new(&header, wrapped),
            Aad::of_answer(&header, now, &iv(1)),
            Aad::of_answer(&header, now, &iv(2)),
            Aad::of_refusal(&header, &[1; TAG_LEN]),
            Aad::of_refusal(&header, &[2; TAG_LEN]),
        ];
        for (i, aad) in all.iter().enumerate() {
            assert_eq!(&aad.octets()[..52], &header);
            assert!(all[..i].iter().all(|other| other.octets() != aad.octets()), "{i}");
        }
        assert_eq!(all.map(|aad| aad.octets().len()), [56, 56, 68, 68, 68, 68]);
        assert_eq!(Aad::new(&[7; HEADER_LEN_MAX], now).octets().len(), HEADER_LEN_MAX + 4);
    }
}
