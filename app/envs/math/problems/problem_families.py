"""All kinds of problems by name, with their topics."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from app.envs.math.problems import algebra, calculus, discrete, geometry, matrices_and_sets
from app.envs.math.problems.latex import Level, MathProblem
from app.toolkit.seeded import SeededRandom

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


class ProblemFamily(NamedTuple):
    topic: Topic
    make: Callable[[SeededRandom, Level], MathProblem]


FAMILIES: Final[Mapping[str, ProblemFamily]] = {
    "fractions": ProblemFamily("algebra", algebra.make_fractions),
    "linear_equation": ProblemFamily("algebra", algebra.make_linear_equation),
    "quadratic_equation": ProblemFamily("algebra", algebra.make_quadratic_equation),
    "linear_system": ProblemFamily("algebra", algebra.make_linear_system),
    "expand": ProblemFamily("algebra", algebra.make_expansion),
    "factor": ProblemFamily("algebra", algebra.make_factorisation),
    "rational_expression": ProblemFamily("algebra", algebra.make_rational_expression),
    "surds": ProblemFamily("algebra", algebra.make_surds),
    "rationalized": ProblemFamily("algebra", algebra.make_rationalization),
    "radical_equation": ProblemFamily("algebra", algebra.make_radical_equation),
    "common_divisor": ProblemFamily("number_theory", discrete.make_common_divisor),
    "common_multiple": ProblemFamily("number_theory", discrete.make_common_multiple),
    "remainder_of_power": ProblemFamily("number_theory", discrete.make_remainder_of_power),
    "inverse": ProblemFamily("number_theory", discrete.make_inverse),
    "divisors": ProblemFamily("number_theory", discrete.make_divisors),
    "common_remainders": ProblemFamily("number_theory", discrete.make_common_remainders),
    "committee": ProblemFamily("counting", discrete.make_committee),
    "arrangements": ProblemFamily("counting", discrete.make_arrangements),
    "ranked": ProblemFamily("counting", discrete.make_ranking),
    "drawn_balls": ProblemFamily("counting", discrete.make_drawn_balls),
    "dice": ProblemFamily("counting", discrete.make_dice),
    "arithmetic_series": ProblemFamily("sequences", discrete.make_arithmetic_series),
    "geometric_series": ProblemFamily("sequences", discrete.make_geometric_series),
    "general_term": ProblemFamily("sequences", discrete.make_general_term),
    "distance": ProblemFamily("geometry", geometry.make_distance),
    "circle": ProblemFamily("geometry", geometry.make_circle),
    "solid": ProblemFamily("geometry", geometry.make_solid),
    "hypotenuse": ProblemFamily("geometry", algebra.make_hypotenuse),
    "polygon": ProblemFamily("geometry", geometry.make_polygon),
    "triangle_area": ProblemFamily("trigonometry", geometry.make_triangle_area),
    "cosine_rule": ProblemFamily("trigonometry", geometry.make_cosine_rule),
    "trigonometric_sum": ProblemFamily("trigonometry", geometry.make_trigonometric_sum),
    "other_function": ProblemFamily("trigonometry", geometry.make_other_function),
    "derivative": ProblemFamily("calculus", calculus.make_derivative),
    "slope": ProblemFamily("calculus", calculus.make_slope),
    "polynomial_integral": ProblemFamily("calculus", calculus.make_polynomial_integral),
    "exact_integral": ProblemFamily("calculus", calculus.make_exact_integral),
    "limit": ProblemFamily("calculus", calculus.make_limit),
    "complex_product": ProblemFamily("complex_numbers", matrices_and_sets.make_complex_product),
    "complex_quotient": ProblemFamily("complex_numbers", matrices_and_sets.make_complex_quotient),
    "absolute_value": ProblemFamily("complex_numbers", geometry.make_absolute_value),
    "determinant": ProblemFamily("matrices", matrices_and_sets.make_determinant),
    "matrix_product": ProblemFamily("matrices", matrices_and_sets.make_matrix_product),
    "linear_inequality": ProblemFamily("inequalities", matrices_and_sets.make_linear_inequality),
    "quadratic_inequality": ProblemFamily("inequalities", matrices_and_sets.make_quadratic_inequality),
    "absolute_inequality": ProblemFamily("inequalities", matrices_and_sets.make_absolute_inequality),
    "set_operation": ProblemFamily("sets", matrices_and_sets.make_set_operation),
}
