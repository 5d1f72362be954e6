//! Rings and queues.

use super::{Answer, Answered, Subject};
use crate::setting::Setting;

/// Descriptors of a receive ring.
const RING_MIN: u32 = 512;
const RING_MAX: u32 = 4096;
const RING_GOOD: u32 = 2048;

pub(super) fn rings(subject: &Subject<'_>) -> Answered {
    let Some(rings) = *subject.interface.rings.get()? else {
        return Ok(Answer::does_not_apply("the driver has no rings to set"));
    };
    let good = if rings.rx_max == 0 { RING_GOOD } else { RING_GOOD.min(rings.rx_max) };
    Ok(if (RING_MIN..=RING_MAX).contains(&rings.rx) {
        Answer::ok(rings.rx)
    } else if rings.rx == good {
        Answer::note(format!("{}, and the driver has no longer one", rings.rx))
    } else {
        Answer::mend(rings.rx)
            .wanted(good)
            .command(format!("ethtool -G {} rx {good}", subject.name()))
            .setting(Setting::RxRing { interface: subject.interface.name.clone(), length: good })
    })
}

pub(super) fn channels(subject: &Subject<'_>) -> Answered {
    let Some(channels) = *subject.interface.channels.get()? else {
        return Ok(Answer::does_not_apply("the driver has no queues to set"));
    };
    let engines = subject.wanted.engines.max(1);
    let queues = channels.combined.saturating_add(channels.rx);
    if queues == engines || queues == 0 {
        return Ok(Answer::ok(queues));
    }
    let answer = if queues < engines { Answer::mend } else { Answer::note };
    let interface = subject.interface.name.clone();
    // Drivers such as veth count receive and transmit queues apart.
    let (change, rx, tx, combined) = if channels.combined > 0 {
        (format!("combined {engines}"), None, None, Some(engines))
    } else {
        (format!("rx {engines} tx {engines}"), Some(engines), Some(engines), None)
    };
    let answer = answer(format!("{queues} receive queues"))
        .wanted(format!("{engines}, one for each engine"));
    if channels.combined_max != 0 && engines > channels.combined_max.saturating_add(channels.rx) {
        return Ok(answer.why("the device has no more: ask for fewer engines"));
    }
    Ok(answer
        .command(format!("ethtool -L {} {change}", subject.name()))
        .setting(Setting::Channels { interface, rx, tx, combined }))
}
