//! `rma-bench decrypt` beside the AES-GCM that it must do: from a file in memory to memory.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Seek as _, Write as _},
};

use rma_bench::{
    decrypt::{Keys, decrypt},
    error::PairError,
    interrupt::Interrupt,
    pair::{cores, pinned},
};
use rma_crypto::{IV_LEN, Key, OpenJob, SealJob, TAG_LEN, Text, fastest};
use rma_xdp::time::{Clock, TscClock};
use rustix::fs::{MemfdFlags, memfd_create};

use super::spec::Measured;

const ROUNDS: usize = 15;
/// Reads of a capture.
const READS: u64 = 1_000;
const PAYLOAD: usize = 4096;
const KEY: [u8; 16] = [7; 16];
/// Octets of a response's header, and of its AAD.
const HEADER: usize = 32;
const AAD: usize = HEADER + IV_LEN;

/// A response, sealed.
struct Response {
    aad: [u8; AAD],
    iv: [u8; IV_LEN],
    payload: Vec<u8>,
    tag: [u8; TAG_LEN],
}

pub(super) fn over_aead(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    pinned(cores().1, || Ok(vec![measure().expect("memory for the capture")]))
}

fn measure() -> io::Result<Measured> {
    let mut responses = Vec::new();
    let mut file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC)?);
    file.write_all(&capture(&mut responses))?;
    let log = format!("1RMA_KD 192.0.2.1 192.0.2.2 9 1 5 {}\n", "07".repeat(16));
    let (mut whole, mut bare) = (Vec::new(), Vec::new());
    let mut plain = vec![0; PAYLOAD];
    let clock = TscClock::new();
    for _ in 0..ROUNDS {
        file.rewind()?;
        let keys = Keys::read(log.as_bytes())?;
        let mut out = Vec::with_capacity(2 * READS as usize * (PAYLOAD + 512));
        let start = clock.now();
        let octets = decrypt(file.try_clone()?, keys, &mut out)?;
        whole.push(clock.now().since(start).as_secs_f64());
        assert_eq!(octets, READS * PAYLOAD as u64, "all are opened");
        let start = clock.now();
        for Response { aad, iv, payload, tag } in &responses {
            let text = Text::from_to(payload, &mut plain).expect("as long");
            let key = Key::from_ref(&KEY).into();
            let mut job = OpenJob { key, iv: *iv, aad, text, tag, authentic: false };
            fastest().open(core::slice::from_mut(&mut job));
            assert!(black_box(job.authentic));
        }
        bare.push(clock.now().since(start).as_secs_f64());
    }
    let [whole, bare] = [whole, bare].map(|mut it| {
        it.sort_unstable_by(f64::total_cmp);
        it[ROUNDS / 2]
    });
    let rate = READS as f64 * PAYLOAD as f64 / 1e6;
    let words = format!(
        "responses of 4096 B with their requests: {:.0} MB/s, bare {:.0} MB/s, {}",
        rate / whole,
        rate / bare,
        fastest().name()
    );
    Ok(Measured::new(bare / whole, words))
}

/// Classic pcap of READs and their responses.
fn capture(responses: &mut Vec<Response>) -> Vec<u8> {
    let mut capture = Vec::new();
    let words = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1];
    capture.extend(words.into_iter().flat_map(u32::to_le_bytes));
    for read in 0..READS {
        let mut request = [0; 40];
        request[..HEADER].copy_from_slice(&header(1, read));
        request[36..40].copy_from_slice(&[0x10, 0, 0x10, 0]);
        let tag = seal(&iv(0, read), &request, &mut []);
        packet(&mut capture, [1, 2], &[&request, &tag]);

        let mut aad = [0; AAD];
        aad[..HEADER].copy_from_slice(&header(2, read));
        // The length of the payload.
        aad[30..32].copy_from_slice(&[0x10, 0]);
        aad[HEADER..].copy_from_slice(&iv(0, read));
        let (iv, mut payload) = (iv(1, read), vec![read as u8; PAYLOAD]);
        let tag = seal(&iv, &aad, &mut payload);
        packet(&mut capture, [2, 1], &[&aad[..HEADER], &payload, &tag]);
        responses.push(Response { aad, iv, payload, tag });
    }
    capture
}

fn iv(direction: u8, counter: u64) -> [u8; IV_LEN] {
    let mut iv = [0; IV_LEN];
    iv[0] = direction;
    iv[4..].copy_from_slice(&counter.to_be_bytes());
    iv
}

/// A header of the op in slot 3, of process 9 on region 5.
fn header(code: u8, counter: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&[2, code]);
    (header[7], header[11], header[13]) = (9, 5, 3);
    header[16..20].copy_from_slice(&(counter as u32).to_be_bytes());
    header[20..28].copy_from_slice(&counter.to_be_bytes());
    header
}

fn seal(iv: &[u8; IV_LEN], aad: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
    let mut tag = [0; TAG_LEN];
    let (key, text) = (Key::from_ref(&KEY).into(), Text::in_place(payload));
    fastest().seal(&mut [SealJob { key, iv: *iv, aad, text, tag: &mut tag }]);
    tag
}

/// A record of a packet from host `ends[0]` to host `ends[1]`.
fn packet(capture: &mut Vec<u8>, ends: [u8; 2], frame: &[&[u8]]) {
    let frame = frame.concat();
    let len = 42 + frame.len() as u32;
    capture.extend([0, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
    let half = |it: usize| (it as u16).to_be_bytes();
    capture.extend([2; 12]);
    capture.extend([8, 0, 0x45, 0]);
    capture.extend(half(28 + frame.len()));
    capture.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    capture.extend([192, 0, 2, ends[0], 192, 0, 2, ends[1]]);
    capture.extend(half(50_000));
    capture.extend(half(10_472));
    capture.extend(half(8 + frame.len()));
    capture.extend([0, 0]);
    capture.extend(frame);
}
