//! Bytes on their way to a device.

use proptest::prelude::*;
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::staging::Staging;
use terrace_ggml::testing::stand_in::stand_in;
use terrace_model::ByteSize;

proptest! {
    /// Pinned and ordinary memory hold what a vector would, over several fillings.
    #[test]
    fn it_holds_what_was_pushed(fillings in prop::collection::vec(
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 0..8), 1..4))
    {
        for (device, is_pinned) in [(DeviceHandle::cpu(), false), (stand_in(ByteSize::mib(64)), true)] {
            let mut staging = Staging::new(device);
            for filling in &fillings {
                staging.clear();
                prop_assert!(staging.is_empty());
                for bytes in filling {
                    staging.push(bytes);
                }
                let expected = filling.concat();
                prop_assert_eq!(staging.bytes(), &expected[..]);
                prop_assert_eq!(staging.len(), expected.len());
                prop_assert!(expected.is_empty() || staging.is_pinned() == is_pinned);
            }
        }
    }
}
