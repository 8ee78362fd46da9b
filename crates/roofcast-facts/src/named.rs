//! Enumerations whose values have names, declared once.

/// Gives an enumeration `ALL`, its values in the order of the list, and `name`, which is complete or does not compile.
#[macro_export]
macro_rules! named {
    ($kind:ident { $($value:ident: $name:literal,)+ }) => {
        impl $kind {
            /// All values.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$value),+];

            /// Name of the value.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name,)+
                }
            }
        }
    };
}
