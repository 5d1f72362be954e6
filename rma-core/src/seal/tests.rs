//! The guarantees that a service counts on: frames come out as they went in, all that is noted is
//! authenticated, and nothing that is left of an earlier batch opens a frame.

use super::*;
use crate::{
    backend::{RxPacket, Transmit},
    crypto::{Direction, EngineId, fastest},
    op::ClassOfService,
    port::{Port, SourcePort},
};
use rma_crypto::DeriveFrom;

/// Of the longest AAD that is tried: a header whose time is told in four octets and authenticated
/// in eight, and the IV of what it answers.
const HEADER: usize = 72;
const WIDE: usize = HEADER + 4;
const AAD: usize = WIDE + 12;

const PAYLOAD: &[u8] = b"what is secret";
const FRAME: usize = HEADER + PAYLOAD.len() + TAG_LEN;

fn iv(counter: u64) -> Iv {
    Iv::new(Direction::ToResponder, EngineId(3), counter)
}

fn key(number: usize) -> Key {
    Key::from_bytes([number as u8; KEY_LEN])
}

fn host(name: &str) -> crate::addr::HostAddr {
    name.parse().unwrap()
}

fn frame() -> [u8; FRAME] {
    let mut frame = [0x11; FRAME];
    frame[HEADER..HEADER + PAYLOAD.len()].copy_from_slice(PAYLOAD);
    frame
}

/// Seals one frame for each of `aads`, frame `i` under `key(i)` with `iv(i)`, an AAD that is its
/// header where there is none. The notes are the numbers of the frames.
fn seal(aads: &[Option<[u8; WIDE]>]) -> Vec<[u8; FRAME]> {
    let mut octets = vec![frame(); aads.len()];
    let mut frames: Vec<_> = octets.iter_mut().map(|octets| TxFrame::new(octets)).collect();
    let mut sealing = Sealing::<usize, AAD>::new();
    for (index, (frame, aad)) in frames.iter_mut().zip(aads).enumerate() {
        let hosts = [host("192.0.2.1"), host("192.0.2.2")];
        let class = ClassOfService::Latency;
        frame.transmit = Some(Transmit::new(hosts, Port::ONE_RMA, class, FRAME));
        let iv = iv(index as u64);
        match aad {
            None => sealing.push(index, &key(index), iv, HEADER),
            Some(wide) => {
                sealing.push_joined(index, &key(index), iv, HEADER, wide, ANSWERED);
            }
        }
    }
    let mut told = Vec::new();
    sealing.seal(fastest(), &mut frames, |note, tag| told.push((note, *tag)));
    let tags = octets.iter().map(|frame| *frame.last_chunk().unwrap());
    assert_eq!(told, tags.enumerate().collect::<Vec<_>>(), "each note with its frame's tag");
    assert!(octets.iter().all(|frame| frame[HEADER..][..PAYLOAD.len()] != *PAYLOAD));
    octets
}

const ANSWERED: &[u8; 12] = b"IV of the GD";

/// Opens those of the frames that have a key, and returns whose tags were right.
fn open(opening: &mut Opening<AAD>, octets: &mut [[u8; FRAME]]) -> Vec<bool> {
    let mut which = FrameSet::default();
    (0..octets.len()).for_each(|index| which.insert(index));
    let mut frames: Vec<_> = octets
        .iter_mut()
        .map(|bytes| {
            RxFrame::alone(RxPacket {
                source: host("192.0.2.1"),
                destination: host("192.0.2.2"),
                port: Port::ONE_RMA,
                source_port: SourcePort::FIRST,
                reply_len_max: 1452,
                link: None,
                bytes,
            })
        })
        .collect();
    let authentic = opening.open(fastest(), &mut frames, which);
    (0..octets.len()).map(|index| authentic.right_tag(index).is_some()).collect()
}

#[test]
fn a_full_batch_with_aads_of_both_kinds_is_opened_as_it_was_sealed() {
    let aads: Vec<_> =
        (0..BATCH).map(|index| (index % 3 > 0).then_some([index as u8; WIDE])).collect();
    let mut octets = seal(&aads);
    let mut opening = Opening::<AAD>::new();
    for (index, aad) in aads.iter().enumerate() {
        match aad {
            None => opening.expect(index, iv(index as u64), HEADER),
            Some(wide) => {
                opening.expect_joined(index, iv(index as u64), HEADER, wide, ANSWERED);
            }
        }
        opening.set_key(index, &key(index));
    }
    assert_eq!(open(&mut opening, &mut octets), [true; BATCH]);
    assert!(octets.iter().all(|frame| frame[HEADER..][..PAYLOAD.len()] == *PAYLOAD));
    assert!((0..BATCH).all(|index| *opening.key(index) == key(index)));
}

#[test]
fn every_octet_that_is_joined_is_authenticated_and_none_of_the_frames_header_besides() {
    let wide = [0x22; WIDE];
    let [sealed] = seal(&[Some(wide)])[..] else { unreachable!("one frame") };
    let verdict = |wide: &[u8; WIDE], answered: &[u8; 12], mut frame: [u8; FRAME]| {
        let mut opening = Opening::<AAD>::new();
        opening.expect_joined(0, iv(0), HEADER, wide, answered);
        opening.set_key(0, &key(0));
        open(&mut opening, core::slice::from_mut(&mut frame))[0]
    };
    assert!(verdict(&wide, ANSWERED, sealed));
    for at in 0..WIDE {
        let mut wide = wide;
        wide[at] ^= 1;
        assert!(!verdict(&wide, ANSWERED, sealed), "octet {at} of the header as it is widened");
    }
    for at in 0..ANSWERED.len() {
        let mut answered = *ANSWERED;
        answered[at] ^= 1;
        assert!(!verdict(&wide, &answered, sealed), "octet {at} of what is answered");
    }
    for at in 0..FRAME {
        let mut frame = sealed;
        frame[at] ^= 1;
        assert_eq!(verdict(&wide, ANSWERED, frame), at < HEADER, "octet {at} of the frame");
    }
}

#[test]
fn a_key_derived_by_cmac_of_eighty_octets_opens_the_frame_that_it_is_for() {
    let schedule = fastest().schedule(&key(77));
    let messages = [[1; 80], [2; 80]];
    let jobs = messages
        .each_ref()
        .map(|message| DeriveJob { schedule: &schedule, from: DeriveFrom::Cmac(message) });
    let mut keys = [Key::default(), Key::default()];
    fastest().derive(&jobs, &mut keys);
    let mut octets = [frame(); 2];
    for (index, (octets, key)) in octets.iter_mut().zip(&keys).enumerate() {
        let (header, rest) = octets.split_at_mut(HEADER);
        let (text, tag) = rest.split_last_chunk_mut().unwrap();
        fastest().seal(&mut [SealJob {
            key: key.into(),
            iv: *iv(index as u64).octets(),
            aad: header,
            text: Text::in_place(text),
            tag,
        }]);
    }
    // Asked for in another order than the frames have.
    let mut opening = Opening::<AAD>::new();
    (0..2).for_each(|index| opening.expect(index, iv(index as u64), HEADER));
    opening.derive(fastest(), [1, 0].into_iter().map(|index| (index, jobs[index])));
    assert_eq!(open(&mut opening, &mut octets), [true; 2]);
    assert_eq!([opening.key(0), opening.key(1)], keys.each_ref());
}

#[test]
fn a_frame_without_a_key_is_not_opened_though_its_place_holds_the_right_one() {
    let sealed = seal(&[None, None]);
    let mut opening = Opening::<AAD>::new();
    for index in 0..2 {
        opening.expect(index, iv(index as u64), HEADER);
        opening.set_key(index, &key(index));
    }
    assert_eq!(open(&mut opening, &mut sealed.clone()), [true; 2]);
    // The same once more, and one of them is expected only.
    (0..2).for_each(|index| opening.expect(index, iv(index as u64), HEADER));
    opening.set_key(1, &key(1));
    let mut again = sealed.clone();
    assert_eq!(open(&mut opening, &mut again), [false, true]);
    assert_eq!(again[0], sealed[0], "nothing of it is decrypted");
}

#[test]
fn split_gives_the_three_parts_and_refuses_short_frames() {
    let mut frame = *b"hheader-payload-0123456789abcdef";
    let parts = split(&mut frame, 8).unwrap();
    assert_eq!(parts.header, b"hheader-");
    assert_eq!(parts.payload, b"payload-");
    assert_eq!(parts.tag, b"0123456789abcdef");
    assert!(split(&mut [0; 23], 8).is_none());
}
