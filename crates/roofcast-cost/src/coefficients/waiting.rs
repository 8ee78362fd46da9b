//! Overlap of device and host: each sometimes waits for the other.
//!
//! Knows: the seconds of both sides. Knows nothing about their origin.

/// Seconds that overlapped host work of `host` seconds adds to a step of `device` seconds: the cube root of the sum
/// of both cubes, minus the device's time. If both times are similar, the step takes longer than either, because each
/// side sometimes waits for the other; otherwise the longer one hides the shorter.
pub(crate) fn waiting(device: f64, host: f64) -> f64 {
    if host <= 0.0 || device <= 0.0 {
        return host.max(0.0);
    }
    let [long, short] = if device > host { [device, host] } else { [host, device] };
    let share = short / long;
    // `libm::cbrt` rounds equally on every machine; the standard library's `cbrt` does not.
    long * libm::cbrt(1.0 + share * share * share) - device
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host without work delays nothing; with equal times of 1 the step takes the cube root of 2, 1.26; with very
    /// different times only the longer counts.
    #[test]
    fn host_and_device_wait_for_each_other_where_they_are_near() {
        assert_eq!(waiting(3.0, 0.0), 0.0);
        assert!((waiting(1.0, 1.0) - 0.259_921).abs() < 1e-6);
        assert!((waiting(1.0, 10.0) - 9.0).abs() < 0.004 && waiting(10.0, 1.0) < 0.004);
        assert_eq!(waiting(0.0, 2.0), 2.0);
    }
}
