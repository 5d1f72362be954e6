//! Frames of StaR, octet by octet.

use rma_star::wire::{
    Cqe, Cqep, EaOfZ, FRAME_LEN_MAX, FrameView, HEADER_LEN_MAX, Initial, Rule, Wqe, frame_len, told,
};

/// See [`crate::star_wire`].
pub(in super::super) fn check(data: &[u8]) {
    entries(data);
    let len = frame_len(data);
    if let Ok(len) = len {
        assert!(0 < len && len <= data.len(), "{len} of {} octets", data.len());
    }
    let Ok(view) = FrameView::parse(data) else { return };
    assert_eq!(len, Ok(data.len()));
    assert!(data.len() <= FRAME_LEN_MAX);
    let (header_len, payload_len) = (view.header_len(), view.payload_len());
    let header = header_of(&view);
    assert_eq!(data[..header_len], header[..header_len]);
    let payload = &data[header_len..][..payload_len];
    entries(payload);
    if let FrameView::Wqep(wqep) = view {
        let inline: usize =
            wqep.claims().wqes(payload).map(|it| it.map_or(0, |(_, data)| data.len())).sum();
        assert!(inline <= payload_len);
    }
}

/// The header that says what `view` does.
fn header_of(view: &FrameView) -> [u8; HEADER_LEN_MAX] {
    const LONG_ENOUGH: &str = "no header is longer";
    let mut out = [0xaa; HEADER_LEN_MAX];
    match view {
        FrameView::Wqep(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::Cqep(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::EaOfZ(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::EaOfF(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::Rd(it) => it.claims().emit(&mut out),
        FrameView::Rda(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::Gd(it) => it.claims().emit(&mut out),
        FrameView::Gda(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
        FrameView::State(it) => it.claims().emit(out.first_chunk_mut().expect(LONG_ENOUGH)),
    }
    out
}

/// Checks that the entries of payloads are malformed, or write back to the same octets.
fn entries(data: &[u8]) {
    for octets in data.as_chunks().0 {
        if let Ok(wqe) = Wqe::parse(octets) {
            let mut out = [0xaa; _];
            wqe.emit(&mut out);
            assert_eq!(out, *octets);
        }
    }
    for octets in data.as_chunks().0 {
        if let Ok(cqe) = Cqe::parse(octets) {
            let mut out = [0xaa; _];
            cqe.emit(&mut out);
            assert_eq!(out, *octets);
        }
    }
    assert!(Cqep::cqes(data).count() <= data.len() && EaOfZ::entries(data).count() <= data.len());
    if let Ok(rule) = Rule::parse(data) {
        assert_eq!(rule.to_octets()[..], *data);
    }
    if let Ok(initial) = Initial::parse(data) {
        assert_eq!(initial.to_octets()[..], *data);
    }
    if let Ok(mr) = told::asked(data) {
        assert_eq!(told::ask(mr)[..], *data);
    }
}
