"""All kinds of problems by name, with their topics."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from app.envs.math.problems import algebra, calculus, geometry, numbers, systems
from app.envs.math.problems.writing import Asked, Level
from app.toolkit.seeded import Draws

Topic = Literal[
    "algebra",
    "number_theory",
    "counting",
    "sequences",
    "geometry",
    "trigonometry",
    "calculus",
    "complex_numbers",
    "matrices",
    "inequalities",
    "sets",
]


class Family(NamedTuple):
    topic: Topic
    make: Callable[[Draws, Level], Asked]


FAMILIES: Final[Mapping[str, Family]] = {
    "fractions": Family("algebra", algebra.fractions),
    "linear_equation": Family("algebra", algebra.linear_equation),
    "quadratic_equation": Family("algebra", algebra.quadratic_equation),
    "linear_system": Family("algebra", algebra.linear_system),
    "expand": Family("algebra", algebra.expand),
    "factor": Family("algebra", algebra.factor),
    "rational_expression": Family("algebra", algebra.rational_expression),
    "surds": Family("algebra", algebra.surds),
    "rationalized": Family("algebra", algebra.rationalized),
    "radical_equation": Family("algebra", algebra.radical_equation),
    "common_divisor": Family("number_theory", numbers.common_divisor),
    "common_multiple": Family("number_theory", numbers.common_multiple),
    "remainder_of_power": Family("number_theory", numbers.remainder_of_power),
    "inverse": Family("number_theory", numbers.inverse),
    "divisors": Family("number_theory", numbers.divisors),
    "common_remainders": Family("number_theory", numbers.common_remainders),
    "committee": Family("counting", numbers.committee),
    "arrangements": Family("counting", numbers.arrangements),
    "ranked": Family("counting", numbers.ranked),
    "drawn_balls": Family("counting", numbers.drawn_balls),
    "dice": Family("counting", numbers.dice),
    "arithmetic_series": Family("sequences", numbers.arithmetic_series),
    "geometric_series": Family("sequences", numbers.geometric_series),
    "general_term": Family("sequences", numbers.general_term),
    "distance": Family("geometry", geometry.distance),
    "circle": Family("geometry", geometry.circle),
    "solid": Family("geometry", geometry.solid),
    "hypotenuse": Family("geometry", algebra.hypotenuse),
    "polygon": Family("geometry", geometry.polygon),
    "triangle_area": Family("trigonometry", geometry.triangle_area),
    "cosine_rule": Family("trigonometry", geometry.cosine_rule),
    "trigonometric_sum": Family("trigonometry", geometry.trigonometric_sum),
    "other_function": Family("trigonometry", geometry.other_function),
    "derivative": Family("calculus", calculus.derivative),
    "slope": Family("calculus", calculus.slope),
    "polynomial_integral": Family("calculus", calculus.polynomial_integral),
    "exact_integral": Family("calculus", calculus.exact_integral),
    "limit": Family("calculus", calculus.limit),
    "complex_product": Family("complex_numbers", systems.complex_product),
    "complex_quotient": Family("complex_numbers", systems.complex_quotient),
    "absolute_value": Family("complex_numbers", geometry.root_of_complex),
    "determinant": Family("matrices", systems.determinant),
    "matrix_product": Family("matrices", systems.matrix_product),
    "linear_inequality": Family("inequalities", systems.linear_inequality),
    "quadratic_inequality": Family("inequalities", systems.quadratic_inequality),
    "absolute_inequality": Family("inequalities", systems.absolute_inequality),
    "set_operation": Family("sets", systems.set_operation),
}
